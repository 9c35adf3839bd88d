"""Every command and every piece of code in README.md does what it says."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from rmrl.config.check import config_problems
from rmrl.config.load import compose_config
from rmrl.rewards.dropins.dropin import load_dropin
from scripts import stage_docs

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *sorted(ROOT.glob("[A-Z]*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]

SCRIPT = re.compile(r"(?:python|bash) ((?:examples|benchmarks|data_preprocess|scripts)/[\w/.]+)")


def blocks(page: Path, language: str) -> list[str]:
    """Code blocks of one language, continued lines joined."""
    found = re.findall(
        rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    return [block.replace("\\\n", " ") for block in found]


def test_make_targets_named_in_the_readme_exist():
    targets = set(
        re.findall(
            r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE
        )
    )
    for page in PAGES:
        named = set(
            re.findall(
                r"(?:`|^)make ([a-z-]+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE
            )
        )
        assert named <= targets, f"{page.name} names {named - targets}"
    assert {"demo", "test", "test-all"} <= targets


def test_how_long_the_demo_takes_stands_on_its_own_page_alone():
    duration = re.compile(r"(?i)demo[^.\n]*\bminutes?\b|\bminutes?\b[^.;\n]*demo\b")
    found = [page.name for page in PAGES if duration.search(page.read_text(encoding="utf-8"))]
    assert found == []
    page = (ROOT / "examples/demo/README.md").read_text(encoding="utf-8")
    assert len(re.findall(r"about \d+ minutes", page)) == 1


def commands() -> list[str]:
    """Command lines of the README's bash blocks, in order; lines joined by && are one."""
    lines = [line for block in blocks(ROOT / "README.md", "bash") for line in block.splitlines()]
    return [line.strip() for line in lines if line.strip()]


def test_the_one_line_composes_without_problems():
    (line,) = [command for command in commands() if "rmrl.main_ppo" in command]
    words = shlex.split(line)
    assert words[:3] == ["python", "-m", "rmrl.main_ppo"]
    config = compose_config(words[3:])
    assert config_problems(config) == []
    assert config.reward.models == ["arithmetic", "answer_judge"]


def test_the_one_line_uses_what_make_makes():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (line,) = [command for command in commands() if "rmrl.main_ppo" in command]
    assert any("make models data" in command for command in commands())
    for word in shlex.split(line):
        for path in re.findall(r"\.(?:models|data)/[\w/-]+", word):
            folder = "/".join(path.split("/")[:2])
            assert folder in makefile or folder == ".models/smollm2", f"make makes no {folder}"


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "docs" / "rewards.md"], ids=lambda p: p.name
)
def test_the_dropin_shown_is_a_working_reward(page: Path, tmp_path: Path):
    code = next(block for block in blocks(page, "python") if "rm_preprocess" in block)
    path = tmp_path / "polite.py"
    path.write_text(code, encoding="utf-8")
    dropin = load_dropin(path, "polite")
    assert dropin.kind == "model"
    assert dropin.preprocess is not None
    assert dropin.postprocess is not None
    (messages,) = dropin.preprocess(["Say hello."], ["Hello!"], None)
    assert messages[0]["role"] == "user"
    assert messages[0]["content"].endswith("Hello!")
    assert dropin.postprocess(["3", "0", "?"]) == [1.0, 0.0, None]


def test_the_rule_shown_is_a_working_reward(tmp_path: Path):
    code = next(
        block
        for block in blocks(ROOT / "docs" / "rewards.md", "python")
        if "compute_score" in block
    )
    path = tmp_path / "short.py"
    path.write_text(code, encoding="utf-8")
    rule = load_dropin(path, "short").compute_score
    assert rule is not None
    assert rule("", "x" * 199, None) == 1.0
    assert rule("", "x" * 200, None) == 0.0


def test_links_lead_somewhere_and_scripts_named_exist():
    lost = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            if not (page.parent / target).exists():
                lost.append(f"{page.relative_to(ROOT)} links to {target}")
        for name in SCRIPT.findall(text):
            if not (ROOT / name).is_file():
                lost.append(f"{page.relative_to(ROOT)} names {name}")
    assert lost == []


FOLDERS = "rmrl|tests|scripts|configs|examples|benchmarks|docs|data_preprocess|reward_functions"


@pytest.mark.parametrize(
    "name",
    [
        "CONTRIBUTING.md",
        "AGENTS.md",
        "SECURITY.md",
        "docs/architecture.md",
        "docs/extending.md",
        "docs/life-of-a-sample.md",
    ],
)
def test_paths_named_exist(name: str):
    """Paths in code spans; those below rmrl/ may leave out the package's own folder."""
    page = (ROOT / name).read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    paths = re.findall(rf"`((?:{FOLDERS})/[\w/.]*[\w/])`", prose)
    assert paths
    assert [path for path in paths if not named_file(path)] == []


def named_file(path: str) -> bool:
    return (ROOT / path).exists() or (ROOT / "rmrl" / path).exists()


def test_the_site_has_every_page():
    """Every page of docs/ stands in the navigation, and every module of the API reference is
    one."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page not in navigation] == []
    for name, (_, modules) in stage_docs.API.items():
        assert f"api/{name}.md" in navigation
        for module in modules:
            path = ROOT / module.replace(".", "/")
            assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file(), module


def test_the_site_holds_every_file_its_pages_link_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "argv", ["stage_docs.py", str(tmp_path / "pages")])
    stage_docs.main()
    for page in (tmp_path / "pages").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (page.parent / target).is_file(), f"{page.name} links to {target}"
