"""The example of over-optimisation, at a size of seconds."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.scripts import load_script

module = load_script(
    Path(__file__).resolve().parents[2] / "examples" / "overoptimise" / "overoptimise.py"
)


def test_it_runs_and_its_curves_begin_at_the_untrained_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, plot = tmp_path / "curves.json", tmp_path / "curves.png"
    flags = "--pairs 64 --steps 20 --prompts 2 --most 16 --grpo-steps 11"
    monkeypatch.setattr(
        sys, "argv", ["overoptimise.py", *flags.split(), f"--out={out}", f"--plot={plot}"]
    )
    module.main()
    (proxies,) = json.loads(out.read_text())["sizes"].values()
    assert set(proxies) == {"single", "mean", "min", "lower_bound", "averaged"}
    for found in proxies.values():
        assert [point[0] for point in found["best_of_n"]["curve"]] == [1, 4, 16]
        assert found["best_of_n"]["curve"][0][1] == found["grpo"]["curve"][0][1] == 0
    # One response, whichever the proxy likes: the same for all.
    first = [found["best_of_n"]["curve"][0][2] for found in proxies.values()]
    assert first == pytest.approx([first[0]] * len(first))
    assert plot.stat().st_size > 0


def test_an_average_of_equal_networks_is_that_network() -> None:
    model = module.network(torch.nn.ReLU, 1)
    x_ND = torch.randn(5, module.ENTRIES)
    same = module.averaged([model, model])
    np.testing.assert_allclose(
        module.scores_of([same], "mean", x_ND), module.scores_of([model], "mean", x_ND), atol=1e-6
    )
