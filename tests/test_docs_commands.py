"""Commands of the pages can be typed as they stand, and the fork's line needs one word changed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rmrl.config.compat import translate
from rmrl.config.load import compose_config
from tests.test_readme import PAGES, ROOT

FENCE = re.compile(r"^```(bash|text|)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
TOOL = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:rmrl [a-z]|python3? |bash |make |pip )")


def shortened(page: str) -> list[str]:
    """Commands in the blocks and code spans of a page with dots in the place of words. In a block
    of bash every line is one."""
    lines: list[str] = []
    for language, code in FENCE.findall(page):
        for line in code.replace("\\\n", " ").splitlines():
            if "..." in line and (language == "bash" or TOOL.match(line)):
                lines.append(line)
    prose = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    for span in SPAN.findall(prose):
        if "..." in span and TOOL.match(span):
            lines.append(span)
    return lines


def test_a_command_with_dots_is_seen() -> None:
    page = "x `rmrl check ... --rows 3` y\n\n```bash\nray job submit \\\n    a=1 ...\n```\n"
    assert shortened(page) == ["ray job submit      a=1 ...", "rmrl check ... --rows 3"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_leaves_something_out(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert shortened(text) == []


def test_the_line_of_the_fork_needs_one_word() -> None:
    text = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
    section = text.split("\n## VeRL-with-RMs\n")[1].split("\n## ")[0]
    (_, before), (_, after), (_, printed) = FENCE.findall(section)
    assert after == before.replace("verl.trainer.main_ppo", "rmrl.main_ppo") != before
    new = shlex.split(after.replace("\\\n", " "))
    config = compose_config(new[3:])
    assert translate(config) == printed.splitlines()
    assert config.reward.models == ["rider_reward", "consistency_reward"]
    assert config.reward.weights == [0.3, 0.5]
    assert config.reward.specs["consistency_reward"]["path"] == "Qwen/Qwen3-8B"
