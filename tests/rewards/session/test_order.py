"""The cost of a component, which decides the order in which a product is scored."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.rewards.session.order import cost
from tests.rewards.parts import engine, judge, rule, scalar


def test_cost_grows_from_rules_over_scalar_models_and_servers_to_judges(tmp_path: Path) -> None:
    similarity = scalar("similarity", engine=engine(runner="embed"))
    server = dataclasses.replace(
        scalar("server"), engines={}, remote=HTTPSpec(url="http://localhost/score", wire="openrlhf")
    )
    judge_on_server = dataclasses.replace(judge(tmp_path), remote=server.remote)
    specs = [rule(tmp_path, "length", "return 1.0"), similarity, scalar(), server, judge(tmp_path)]
    assert [cost(spec) for spec in specs] == [0, 1, 2, 3, 4]
    assert cost(judge_on_server) == 4
