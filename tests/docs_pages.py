"""The pages about rewards as tests read them: named code blocks, sections, and a folder in which
all of the blocks can be used."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

from rmrl.rewards.specs.spec import RewardSpec
from tests.rewards.parts import adapter, checkpoint
from tests.support import fakes

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [DOCS / "rewards.md", *sorted((DOCS / "rewards").rglob("*.md")), DOCS / "extending.md"]

JUDGES = (
    ".models/smollm2",
    "Qwen/Qwen3-4B",
    "Qwen/Qwen2.5-7B-Instruct",
    "intfloat/multilingual-e5-small",
)
SCALARS = (
    ".models/ms-marco-minilm",
    "Skywork/Skywork-Reward-V2-Qwen3-4B",
    "Skywork/Skywork-Reward-V2-Qwen3-0.6B",
)
STEP_MODELS = ("Qwen/Qwen2.5-Math-PRM-7B",)
ADAPTERS = ("adapters/kind", "adapters/exact")
CLASSIFIERS = {
    "unitary/toxic-bert": ("toxic", "severe_toxic", "obscene", "threat", "insult"),
    "my-org/critique-checker": ("wrong", "right"),
    "my-org/five-attributes": ("helpfulness", "correctness", "coherence", "style", "verbosity"),
}
"""Checkpoints and adapters that the pages name: in `lay_out` they are folders with headers and no weights."""

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block. `name`: the path in its first line, where that is a comment such as `#
    conf/reward/mine.yaml`, else ""."""

    page: str
    language: str
    code: str
    name: str


def blocks(language: str) -> list[Block]:
    """Of all pages, in order."""
    found = []
    for page in PAGES:
        for kind, code in _BLOCK.findall(page.read_text(encoding="utf-8")):
            first = code.partition("\n")[0].removeprefix("# ")
            named = first if re.fullmatch(r"[\w./]+\.(py|yaml)", first) else ""
            found.append(Block(str(page.relative_to(DOCS)), kind, code, named))
    return [block for block in found if block.language == language]


def commands() -> list[tuple[str, str]]:
    """(page, command) of each line in the bash blocks, continued lines joined."""
    joined = [(block.page, block.code.replace("\\\n", " ")) for block in blocks("bash")]
    return [
        (page, " ".join(line.split()))
        for page, code in joined
        for line in code.splitlines()
        if line.strip()
    ]


def lay_out(folder: Path) -> Path:
    """All named blocks as files below `folder`, beside the checkpoints that they name."""
    for block in [*blocks("python"), *blocks("yaml")]:
        path = folder / block.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.code, encoding="utf-8")
    for name in JUDGES:
        checkpoint(folder / name)
    for name in SCALARS:
        checkpoint(folder / name, head=True)
    for name in STEP_MODELS:
        checkpoint(folder / name, head=True, labels=2)
    for name in ADAPTERS:
        adapter(folder / name)
    for name, labels in CLASSIFIERS.items():
        checkpoint(folder / name, head=True, names=labels)
    return folder


def section(page: str, heading: str) -> str:
    """The text under a heading up to the next one of its level."""
    text = (DOCS / page).read_text(encoding="utf-8")
    level = heading.partition(" ")[0]
    start = text.index(f"\n{heading}\n") + 1
    end = re.search(rf"^#{{2,{len(level)}}} ", text[start + len(heading) :], flags=re.MULTILINE)
    return text[start : start + len(heading) + end.start()] if end else text[start:]


def table_rows(text: str) -> list[list[str]]:
    """Cells of every table row, rules left out."""
    rows = [
        line.strip().strip("|")
        for line in text.splitlines()
        if line.startswith("|") and not set(line) <= set("|-: ")
    ]
    return [[cell.strip() for cell in row.split(" | ")] for row in rows]


def on_fake_engines(spec: RewardSpec) -> RewardSpec:
    """The same reward on engines that answer anything; process models have two labels."""

    def fake(role: str) -> dict[str, object]:
        if spec.labels is not None:
            return {"labels": len(spec.labels.names)}
        return {"labels": 2} if spec.engines[role].runner == "token_pooling" else {}

    engines = {
        role: dataclasses.replace(
            engine, name=fakes.REWARD_ENGINE, kwargs=fake(role), max_model_len=4096, pool=""
        )
        for role, engine in spec.engines.items()
    }
    return dataclasses.replace(spec, engines=engines)
