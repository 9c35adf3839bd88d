"""Every command and every piece of code in README.md does what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rmrl.config.check import config_problems
from rmrl.config.load import compose_config
from rmrl.rewards.rules.dropin import load_dropin

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]


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


def test_the_one_line_composes_without_problems():
    (line,) = [
        line
        for block in blocks(ROOT / "README.md", "bash")
        for line in block.splitlines()
        if "rmrl.main_ppo" in line
    ]
    words = shlex.split(line)
    assert words[:3] == ["python", "-m", "rmrl.main_ppo"]
    config = compose_config(words[3:])
    assert config_problems(config) == []
    assert config.reward.models == ["gsm8k", "answer_judge"]


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


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_scripts_named_exist(page: Path):
    text = page.read_text(encoding="utf-8")
    for name in re.findall(
        r"(?:python|bash) ((?:examples|benchmarks|data_preprocess|scripts)/[\w/.]+)", text
    ):
        assert (ROOT / name).is_file(), f"{page.name} names {name}"
