"""Real scripts for verl pass whole."""

from __future__ import annotations

import pytest

from tests.config.verl_lines import SCRIPTS, line_problems, scripts


@pytest.mark.skipif(not SCRIPTS.is_file(), reason="the overrides of real scripts are not at hand")
def test_most_real_scripts_pass_whole():
    """The others ask for tools, images, other backends, distributed checkpoints, losses of the
    router, or have empty variables."""
    broken = {
        name: problems for name, words in scripts().items() if (problems := line_problems(words))
    }
    own = {
        name: problems
        for name, problems in broken.items()
        if not all(p.startswith("reward_model.") for p in problems)
    }
    assert len(own) <= 105, own
