"""Copy the pages of the documentation site, and the files they link to, into one folder.

    python scripts/stage_docs.py build/pages

Pages link to files outside docs/ (README.md, examples, measurements). The folder keeps the layout
of the project, so that every relative link holds in the site as it does in a checkout. Pages of the
API reference are written beside them, one per part of the package.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
API = {
    "types": ("Types", ("rmrl.types", "rmrl.errors", "rmrl.registry")),
    "rewards": (
        "Rewards",
        (
            "rmrl.rewards.specs.spec",
            "rmrl.rewards.kinds",
            "rmrl.rewards.judging.verdicts",
            "rmrl.rewards.combine.table",
            "rmrl.rewards.transforms.table",
            "rmrl.rewards.remote.client",
            "rmrl.rewards.session.scorer",
        ),
    ),
    "python": ("Scores in Python", ("rmrl.offline.rewards", "rmrl.offline.score_table")),
    "adapters": (
        "Adapters",
        (
            "rmrl.adapters.trl",
            "rmrl.adapters.verl",
            "rmrl.adapters.openrlhf",
            "rmrl.adapters.verifiers",
        ),
    ),
    "report": ("Report", ("rmrl.report.page", "rmrl.report.statistics", "rmrl.report.explain")),
    "algorithms": ("Algorithms", ("rmrl.algorithms",)),
    "inference": (
        "Inference",
        ("rmrl.inference.reward_engine_base", "rmrl.inference.rollout_base"),
    ),
    "backends": ("Backends", ("rmrl.backends.base", "rmrl.backends.objective")),
    "data": ("Data", ("rmrl.data.schema", "rmrl.data.rows", "rmrl.data.write")),
    "telemetry": ("Telemetry", ("rmrl.telemetry.sinks",)),
}
"""File name -> title and modules of a page of the API reference."""

_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def main() -> None:
    """Write the folder named on the command line anew."""
    folder = Path(sys.argv[1]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    waiting = [ROOT / name for name in PAGES] + sorted((ROOT / "docs").rglob("*.md"))
    copied: set[Path] = set()
    while waiting:
        page = waiting.pop()
        if page in copied:
            continue
        copied.add(page)
        target = folder / page.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, target)
        if page.suffix == ".md":
            waiting += linked_files(page)
    for name, (title, modules) in API.items():
        blocks = [f"::: {module}\n" for module in modules]
        path = folder / "api" / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([f"# {title}\n", *blocks]), encoding="utf-8")
    print(f"{len(copied)} files and {len(API)} pages of the API reference in {folder}")


def linked_files(page: Path) -> list[Path]:
    """Return the files of the project that a page links to."""
    targets = [
        (page.parent / link).resolve() for link in _LINK.findall(page.read_text(encoding="utf-8"))
    ]
    return [target for target in targets if target.is_file()]


if __name__ == "__main__":
    main()
