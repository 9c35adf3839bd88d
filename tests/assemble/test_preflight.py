"""Trials of rewards on the first rows, before an engine is started."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rmrl.assemble.preflight import package_problem, reward_preflight
from rmrl.assemble.resolve import resolve
from rmrl.config.schema import RewardConfig
from rmrl.rewards.remote.reach import unreachable
from rmrl.rewards.session.items import ResponseRow
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Prompt
from tests.patience import expires

SIGNATURE = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"


def rule(folder: Path, body: str, **spec: object) -> list[RewardSpec]:
    (folder / "mine.py").write_text(
        SIGNATURE + "".join(f"    {line}\n" for line in body.splitlines())
    )
    config = RewardConfig(models=["mine"], specs={"mine": spec} if spec else {})
    resolved = resolve(config, device="cpu", shipped_functions=folder, trust_remote_code=False)
    assert resolved.problems == []
    return resolved.specs


def rows(*truths: str | None) -> list[ResponseRow]:
    prompts = [
        Prompt(
            id=f"rows.parquet:{i}",
            messages=({"role": "user", "content": "?"},),
            token_ids=(),
            ground_truth=truth,
        )
        for i, truth in enumerate(truths)
    ]
    return [
        ResponseRow(prompt=prompt, text=prompt.ground_truth or "I do not know.")
        for prompt in prompts
    ]


def test_a_rule_that_raises_on_every_row_is_found_with_its_own_line(tmp_path: Path) -> None:
    (problem,) = reward_preflight(
        rule(tmp_path, "x = 1\nreturn float(solution_str)"), rows("two", "three"), device="cpu"
    )
    assert "reward 'mine' gave no verdict on 2 of 2 trial responses (user_error)" in problem
    assert "could not convert string to float: 'two'" in problem
    assert f"{tmp_path / 'mine.py'}:3" in problem
    assert "row rows.parquet:0" in problem


def test_a_rule_that_returns_text_is_found(tmp_path: Path) -> None:
    (problem,) = reward_preflight(rule(tmp_path, "return 'good'"), rows("1"), device="cpu")
    assert "(user_error)" in problem
    assert "'good'" in problem


def test_a_rule_that_hangs_is_found_at_its_deadline(tmp_path: Path) -> None:
    hangs = rule(tmp_path, "import time\ntime.sleep(600)", timeout_s=expires(0.3))
    (problem,) = reward_preflight(hangs, rows("1"), device="cpu")
    assert "(timeout)" in problem


def test_a_rule_that_fails_on_some_rows_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    problems = reward_preflight(
        rule(tmp_path, "return float(solution_str)"),
        rows("2", "three"),
        device="cpu",
    )
    assert problems == []
    (message,) = caplog.messages
    assert "1 of 2 trial responses" in message
    assert "row rows.parquet:1" in message


def test_a_sound_rule_has_no_problem_and_one_that_abstains_neither(tmp_path: Path) -> None:
    assert reward_preflight(rule(tmp_path, "return 0.5"), rows("2", None), device="cpu") == []
    assert reward_preflight(rule(tmp_path, "return None"), rows("2"), device="cpu") == []


def test_without_rows_no_rule_is_called(tmp_path: Path) -> None:
    assert reward_preflight(rule(tmp_path, "raise ValueError"), [], device="cpu") == []


def test_a_rule_is_tried_on_rows_of_its_own_source_only(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SIGNATURE + "    raise ValueError\n")
    config = RewardConfig(by_source={"here": {"models": ["mine"]}})
    specs = resolve(config, device="cpu", shipped_functions=tmp_path, trust_remote_code=False).specs
    assert reward_preflight(specs, rows("1"), device="cpu") == []


def test_a_server_that_does_not_answer_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        url = f"http://127.0.0.1:{port}/score"
        spec = remote(url)
        assert reward_preflight([spec], [], device="cpu") == []
    (problem,) = reward_preflight([spec], [], device="cpu")
    assert f"reward 'judge': no server answers at {url}" in problem
    assert "start the server" in problem


def remote(url: str) -> RewardSpec:
    config = RewardConfig(
        models=["judge"], specs={"judge": {"kind": "remote", "url": url, "wire": "openrlhf"}}
    )
    resolved = resolve(config, device="cpu", shipped_functions=Path(), trust_remote_code=False)
    assert resolved.problems == []
    return resolved.specs[0]


@pytest.mark.parametrize("url", ["http://", "nonsense", "http://127.0.0.1:99999/"])
def test_a_url_that_names_no_host_is_unreachable(url: str) -> None:
    assert list(unreachable([url])) == [url]


def test_rows_without_the_reference_of_a_similarity_are_found(
    tmp_path: Path, tiny_llama: Path
) -> None:
    config = RewardConfig(
        models=["near"], specs={"near": {"kind": "similarity", "path": str(tiny_llama)}}
    )
    specs = resolve(config, device="cpu", shipped_functions=tmp_path, trust_remote_code=False).specs
    (problem,) = reward_preflight(specs, rows(None, None), device="cpu")
    assert "reward 'near': row rows.parquet:0 has no reference: ground_truth" in problem
    assert reward_preflight(specs, rows(None, "a text"), device="cpu") == []


class Installed:
    package = "json"


class Missing:
    package = "no_such_package_of_ours"


def test_a_package_that_is_not_installed_is_named_with_its_command() -> None:
    assert package_problem("trainer.logger", "x", Installed, device="cpu") == ""
    assert package_problem("trainer.logger", "x", object(), device="cpu") == ""
    problem = package_problem("trainer.logger", "x", Missing, device="cpu")
    assert (
        problem
        == "trainer.logger=x needs the package no_such_package_of_ours, which is not installed: pip"
        " install no_such_package_of_ours"
    )


def test_a_rule_of_token_ids_is_not_tried_on_rows_of_text(tmp_path: Path) -> None:
    (tmp_path / "ids.py").write_text(
        "def length(completions, completion_ids, **kwargs):\n"
        "    return [float(ids[-1]) for ids in completion_ids]\n"
    )
    spec = {"kind": "rule", "function": f"{tmp_path / 'ids.py'}:length"}
    problems: dict[str, list[str]] = {}
    for name, extra in (("text", {}), ("ids", {"tokenizer": "policy"})):
        config = RewardConfig(models=[name], specs={name: {**spec, **extra}})
        resolved = resolve(
            config, device="cpu", shipped_functions=tmp_path, trust_remote_code=False
        )
        assert resolved.problems == []
        problems[name] = reward_preflight(resolved.specs, rows("1", "2"), device="cpu")
    assert "gave no verdict on 2 of 2 trial responses" in problems["text"][0]
    assert problems["ids"] == []


def test_a_missing_reference_is_answered_with_the_columns_there_are(tmp_path: Path) -> None:
    specs = rule(tmp_path, "return float(int(ground_truth))")
    columns = ("question", "gold")
    (problem,) = reward_preflight(specs, rows(None, None), device="cpu", columns=columns)
    assert "no row here has a reference; the columns are question, gold" in problem
    assert "data.columns.reference=..." in problem
    # Here the function is at fault.
    (problem,) = reward_preflight(specs, rows("four"), device="cpu", columns=columns)
    assert problem.endswith("; correct the function before the run")
