"""`from rmrl import Rewards`: the scores of `rmrl score`, from lists in memory."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pandas
import pyarrow
import pytest

import rmrl
from rmrl import AsyncRewards, Rewards
from rmrl.config.load import compose_config
from rmrl.errors import ConfigError, DataError, MissingVerdictsError, RmrlError
from rmrl.offline.progress import counting
from tests.inputs import read_lines, rule, write_lines
from tests.offline.conftest import LENGTH, Bench

ROOT = Path(__file__).resolve().parents[2]


def settings(folder: Path, **reward: Any) -> dict[str, Any]:
    """The rule `length` of the bench: a tenth of the response's length."""
    section = {
        "models": ["length"],
        "functions_dir": str(folder / "functions"),
        "rule_workers": 1,
        **reward,
    }
    return {"reward": section, "trainer": {"device": "cpu"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "length.py").write_text(LENGTH)
    return tmp_path


def added(row: dict[str, Any]) -> dict[str, Any]:
    """The columns of scoring."""
    return {
        name: value
        for name, value in row.items()
        if name == "reward" or name.startswith(("score_", "status_", "detail_", "extra_"))
    }


def test_scores_by_hand_and_the_columns_of_rmrl_score(folder: Path) -> None:
    with Rewards(settings(folder)) as rewards:
        table = rewards.score(["p", "q"], ["four", ["x", "silent"]], references=["1", "2"])
    assert list(table.columns) == [
        *("prompt", "response", "ground_truth"),
        *("reward", "score_length", "status_length", "detail_length", "extra_length"),
    ]
    assert table["reward"] == [0.4, [0.1, None]]  # 4 / 10, 1 / 10, no verdict
    assert table["status_length"] == ["ok", ["ok", "unparseable"]]
    assert table["extra_length"] == ['{"first": "f"}', ['{"first": "x"}', None]]
    assert [row["prompt"] for row in table] == ["p", "q"]
    assert table.to_list() == list(table)
    assert (len(table), table.summary.rows, table.summary.kept) == (2, 3, 2)
    with pytest.raises(KeyError, match="no column 'rewards'; there are prompt"):
        table["rewards"]


@pytest.mark.parametrize(
    "transform",
    [
        {},
        {"length": {"kind": "standardize", "by": "group"}},
        {"length": {"kind": "standardize", "by": "batch"}},
        {"length": {"kind": "standardize", "by": "running"}},
    ],
    ids=["plain", "group", "batch", "running"],
)
def test_scores_equal_those_of_rmrl_score_on_the_same_rows(
    bench: Bench, transform: dict[str, Any]
) -> None:
    """Groups whose rows lie apart, lists of responses, and batches that are smaller than the
    rows."""
    rows: list[dict[str, Any]] = []
    for number in range(40):
        length = 1 + number * 7 % 11
        response: Any = ["a" * length, "b" * (length + 3)] if number % 4 == 0 else "c" * length
        rows.append({"prompt": f"question {number % 9}", "response": response})
    data = write_lines(bench.folder / "rows.jsonl", rows)
    out = bench.folder / "scored.jsonl"
    words = [f"++reward.transforms={json.dumps(transform)}"] if transform else []
    keys = [word.replace('"', "").replace("++", "") for word in words]
    bench.score(bench.checked(f"data.files={data}", f"out={out}", "data.batch_size=12", *keys))
    scored = read_lines(out)
    config = settings(bench.folder, transforms=transform) | {"data": {"batch_size": 12}}
    with Rewards(config) as rewards:
        table = rewards.score_rows(rows)
        again = rewards.score_rows(rows)
    assert [added(row) for row in table] == [added(row) for row in scored]
    assert table.to_list() == again.to_list()  # running statistics start anew with each call


async def test_it_works_where_an_event_loop_runs(folder: Path) -> None:
    with Rewards(settings(folder)) as rewards:
        assert rewards.score(["p"], ["four"])["reward"] == [0.4]


async def test_calls_of_the_async_twin_that_overlap_give_their_own_rows(folder: Path) -> None:
    async with AsyncRewards(settings(folder)) as rewards:
        tables = await asyncio.gather(
            rewards.score(["p"], ["four"]), rewards.score(["p", "q"], ["x", "xx"])
        )
    assert [table["reward"] for table in tables] == [[0.4], [0.1, 0.2]]


def test_the_column_of_what_was_read_tells_an_empty_part_from_a_whole_response(
    folder: Path,
) -> None:
    """null: the reward read the whole response."""
    specs = {"length": {"reads": "answer"}}
    texts = ["four", "<think>a</think>xx", "<think>a</think>"]
    with Rewards({**settings(folder, specs=specs), "columns": ["read"]}) as rewards:
        table = rewards.score(["p"] * 3, texts)
    assert table["read_length"] == [None, "xx", ""]
    assert table["reward"] == [0.4, 0.2, 0.0]


def test_messages_sources_and_further_columns_reach_the_reward(folder: Path) -> None:
    (folder / "functions" / "reads.py").write_text(
        rule("return {'score': extra_info['points'], 'saw': f'{data_source} {ground_truth}'}")
    )
    turns = [{"role": "user", "content": "How are you?"}]
    with Rewards(settings(folder, models=["reads"])) as rewards:
        table = rewards.score(
            [turns, "p"],
            ["well", "well"],
            references=["1", "2"],
            data_source="talks",
            extra_info=[{"points": 3}, {"points": 4}],
        )
    assert table["reward"] == [3.0, 4.0]
    assert table["extra_reads"] == ['{"saw": "talks 1"}', '{"saw": "talks 2"}']


def test_from_config_reads_a_section_a_configuration_and_the_file_of_a_run(folder: Path) -> None:
    whole = settings(folder)
    run = {**whole, "actor_rollout_ref": {}, "algorithm": {}, "data": {"train_files": "a"}}
    for number, content in enumerate((whole["reward"], whole, run)):
        path = folder / f"{number}.yaml"
        path.write_text(json.dumps(content))
        with Rewards.from_config(path) as rewards:
            assert rewards.score(["p"], ["four"])["reward"] == [0.4]


MISTAKES: dict[str, tuple[Any, type[RmrlError], str]] = {
    "key": ({"modls": ["length"]}, ConfigError, "did you mean 'models'"),
    "nested key": ({"engine": {"nam": "hf"}}, ConfigError, "did you mean 'name'"),
    "type": ({"models": ["length"], "max_missing": "many"}, ConfigError, "many"),
    "name": ({"models": ["lengt"]}, ConfigError, "did you mean 'length'"),
    "no models": ({"models": []}, ConfigError, "reward.models"),
    "files": ({"reward": {}, "data": {"files": "a.jsonl"}}, ConfigError, "data.files is about"),
    "section": ({"reward": {}, "trainr": {}}, ConfigError, "did you mean 'trainer'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_configuration_is_a_typed_sentence(folder: Path, name: str) -> None:
    content, kind, sentence = MISTAKES[name]
    section = content.get("reward", content)
    section.setdefault("functions_dir", str(folder / "functions"))
    with pytest.raises(kind, match=sentence):
        Rewards(content)


def test_files_that_hold_no_configuration_are_refused(folder: Path) -> None:
    (folder / "list.yaml").write_text("- a\n")
    with pytest.raises(ConfigError, match="holds list"):
        Rewards.from_config(folder / "list.yaml")
    with pytest.raises(ConfigError, match=r"none.yaml does not exist"):
        Rewards.from_config(folder / "none.yaml")


def test_rows_that_cannot_be_scored_are_refused(folder: Path) -> None:
    (folder / "functions" / "raises.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth):\n    raise ValueError('no')\n"
    )
    with Rewards(settings(folder)) as rewards:
        with pytest.raises(DataError, match="'response' has 1 values for 2 prompts"):
            rewards.score(["p", "q"], ["x"])
        with pytest.raises(DataError, match="need a list with a value per prompt"):
            rewards.score("p", "x")
        with pytest.raises(DataError, match="row 1, column 'response': saw None"):
            rewards.score(["p", "q"], ["x", None])
        with pytest.raises(DataError, match="no rows"):
            rewards.score([], [])
        assert rewards.score(["p"], ["x"])["reward"] == [0.1]
    with pytest.raises(ConfigError, match="closed"):
        rewards.score(["p"], ["x"])
    broken = Rewards(settings(folder, models=["raises"]))
    with pytest.raises(ConfigError, match="gave no verdict on 2 of 2 trial responses"):
        broken.score(["p", "q"], ["x", "y"])
    broken.close()


class PolarsFake:
    """A frame as polars has it, which is not installed here."""

    def to_dicts(self) -> list[dict[str, Any]]:
        return list(ROWS)


ROWS = [{"prompt": "p", "response": "four"}, {"prompt": "q", "response": "x"}]
FRAMES: dict[str, Callable[[], Any]] = {
    "rows": lambda: ROWS,
    "a generator": lambda: iter(ROWS),
    "pandas": lambda: pandas.DataFrame(ROWS),
    "pyarrow": lambda: pyarrow.Table.from_pylist(ROWS),
    "datasets": lambda: datasets.Dataset.from_list(ROWS),
    "polars": PolarsFake,
}


@pytest.mark.parametrize("name", FRAMES)
def test_rows_may_be_a_data_frame_or_a_table(folder: Path, name: str) -> None:
    with Rewards(settings(folder)) as rewards:
        table = rewards.score_rows(FRAMES[name]())
    assert table["reward"] == [0.4, 0.1]
    assert table["prompt"] == ["p", "q"]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (ROWS[0], "saw {'prompt': 'p', 'response': 'four'}; need a list of rows or a data frame"),
        ("rows.jsonl", "saw 'rows.jsonl'; need a list of rows"),
        (3, "saw 3; need a list of rows"),
        ([ROWS[0], "x"], "row 1: saw 'x'; need a mapping"),
    ],
)
def test_what_holds_no_rows_is_a_sentence(folder: Path, rows: Any, sentence: str) -> None:
    with Rewards(settings(folder)) as rewards, pytest.raises(DataError, match=re.escape(sentence)):
        rewards.score_rows(rows)


def test_rewards_that_nobody_closes_end_in_silence(folder: Path) -> None:
    """When a process ends, too, where a `__del__` finds emptied modules."""
    before = set(threading.enumerate())
    rewards = Rewards(settings(folder))
    rewards.score(["p"], ["x"])
    new = set(threading.enumerate()) - before
    (loop,) = (thread for thread in new if thread.name == "rmrl-rewards")
    del rewards
    loop.join(300)
    assert not loop.is_alive()
    script = (
        "from rmrl import Rewards\n"
        f"rewards = Rewards({settings(folder)!r})\n"
        "print(rewards.score(['p'], ['x'])['reward'])\n"
        "import pandas, datasets\n"  # with these the object outlives the modules
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert (done.stdout, done.stderr, done.returncode) == ("[0.1]\n", "", 0)


def test_missing_verdicts_are_a_warning_or_an_error(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    responses = ["long enough", "silent"]
    with caplog.at_level(logging.WARNING, logger="rmrl"), Rewards(settings(folder)) as rewards:
        assert rewards.score(["p", "q"], responses)["reward"] == [1.1, None]
    assert "gave no verdict for 1 of 2 responses" in caplog.text
    strict = settings(folder) | {"over_budget": "fail"}
    with Rewards(strict) as rewards, pytest.raises(MissingVerdictsError, match=r"max_missing=0\.2"):
        rewards.score(["p", "q"], responses)


LIGHT = """
import sys
import rmrl
before = sorted(name for name in sys.modules if name.startswith("rmrl."))
from rmrl import Rewards
config = {"reward": {"models": ["gsm8k"]}, "trainer": {"device": "cpu"}}
with Rewards(config) as rewards:
    table = rewards.score(["2 + 2?"], ["#### 4"], references=["4"])
heavy = [name for name in ("ray", "vllm", "torch", "transformers", "pandas") if name in sys.modules]
frame = table.to_pandas()
print(before, heavy, frame["reward"].tolist())
"""


@pytest.mark.parametrize(
    ("engine", "budget", "share"), [({}, None, 0.5), ({}, 20, None), ({"gpu_memory_utilization": 0.2}, None, 0.2)]
)  # fmt: skip
def test_beside_a_trainer_an_engine_leaves_half_of_a_gpu(
    folder: Path, engine: dict[str, Any], budget: float | None, share: float | None
) -> None:
    config = settings(folder, engine=engine)
    config["trainer"]["memory_budget_gb"] = budget
    with Rewards(config, in_training=True) as rewards:
        assert rewards.checked.config.reward.engine.gpu_memory_utilization == share


def test_the_import_is_light_and_a_rule_needs_neither_ray_nor_pandas() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "[] [] [1.0]", done.stderr


def test_other_names_of_the_package_are_unknown() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Reward'"):
        rmrl.Reward  # noqa: B018


def test_rows_have_the_columns_that_the_configuration_names(folder: Path) -> None:
    config = settings(folder)
    config["data"] = {"columns": {"prompt": "meta.question", "response": "a.1", "reference": "g"}}
    rows = [{"meta": {"question": "p"}, "a.1": "four", "g": "1"}]
    with Rewards(config) as rewards:
        assert rewards.score_rows(rows)["reward"] == [0.4]
        table = rewards.score(["p"], ["sixsix"], references=["1"])
        assert list(table.columns)[:3] == ["meta.question", "a.1", "g"]
        assert table["reward"] == [0.6]
        with pytest.raises(DataError, match=r"data.columns.reference=g: no row has such a column"):
            rewards.score_rows([{"meta": {"question": "p"}, "a.1": "four"}])
    config["data"] = {"columns": {"promt": "q"}}
    with pytest.raises(ConfigError, match=r"data.columns.promt: no value of that name"):
        Rewards(config)


@pytest.mark.parametrize("in_training", [False, True])
def test_a_long_call_says_how_far_it_is_but_for_a_step_of_a_training(
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    in_training: bool,
) -> None:
    shown = partial(counting, every_s=0.0)
    monkeypatch.setattr("rmrl.offline.rewards.counting", shown)
    caplog.set_level("INFO", logger="rmrl.offline.progress")
    count = 40
    with Rewards(settings(folder), in_training=in_training) as rewards:
        rewards.score(["2 + 2?"] * count, ["4"] * count, references=["4"] * count)
    # The first batches have 16 and 32 responses.
    said = [message for message in caplog.messages if message.startswith("scored")]
    assert said == ([] if in_training else ["scored 16 of 40 responses"])


def rate(data_source: str, solution_str: str, ground_truth: str) -> float:
    return 1.0


OTHER_CONFIGS: dict[str, tuple[Any, str]] = {
    "a number": (3, "saw 3; need a section `reward`, e.g. {'models': ['gsm8k']}"),
    "nothing": (None, "saw None; need a section `reward`"),
    "an unknown name": ("gsm8", "nothing named 'gsm8'; did you mean 'gsm8k'?"),
    "a long text": ("long " * 99, "reward.models: nothing named 'long"),
    "a file that is not there": ("reward.yaml", "reward.yaml does not exist; give a YAML file"),
    "a lambda": (lambda solution_str: 1.0, "which has no name to report its scores under: give"),
    "two functions of one name": (
        {"models": [rate], "specs": {"rate": {"function": "rules.py"}}},
        "two functions are called 'rate'; give each a name of its own",
    ),
    "a number as the rule": (
        {"models": ["a"], "specs": {"a": {"function": 3}}},
        "reward.specs.a.function=3: give a name or a function or null",
    ),
    "a function that cannot be copied": (
        [partial(rate, lock=threading.Lock())],
        "cannot be copied to the processes that run rules (TypeError: cannot pickle",
    ),
}


class Words:
    def __init__(self, word: str = "four") -> None:
        self.word = word

    def __call__(self, solution_str: str, ground_truth: str) -> float:
        return float(solution_str.count(self.word))


def longer(than: int) -> Callable[..., float]:
    """A function that no module has under a name."""
    return lambda solution_str: float(len(solution_str) > than)


RULES: dict[str, tuple[Any, dict[str, float | None]]] = {
    "a name": ("math_verify", {"math_verify": 0.0}),
    "a list of names": (["math_verify"], {"math_verify": 0.0}),
    "a function": (rate, {"rate": 1.0}),
    "a function and a name": ([rate, "math_verify"], {"rate": 1.0, "math_verify": 0.0}),
    "a function among models": ({"models": [rate], "weights": [0.5]}, {"rate": 1.0}),
    "beside other sections": ({"reward": [rate], "columns": ["raw"]}, {"rate": 1.0}),
    "a class": (Words, {"Words": 2.0}),
    "an object": ([Words("times")], {"Words": 1.0}),
    "a partial": ([partial(rate, data_source="s")], {"rate": 1.0}),
    "a lambda with a name": (
        {"models": ["long"], "specs": {"long": {"function": longer(20)}}},
        {"long": 0.0},
    ),
    "a class with arguments": (
        {"models": ["w"], "specs": {"w": {"function": Words, "arguments": {"word": "o"}}}},
        {"w": 2.0},
    ),
    "for one source": (
        {"models": ["math_verify"], "by_source": {"s": {"models": [rate]}}},
        {"math_verify": None, "rate": 1.0},
    ),
}
"""Configuration -> scores for the response "four four times" and the reference 8."""


@pytest.mark.parametrize("name", RULES)
def test_rewards_by_their_names_and_functions(name: str) -> None:
    config, scores = RULES[name]
    with Rewards(config) as rewards:
        (row,) = rewards.score(["2 * 4?"], ["four four times"], references=["8"], data_source="s")
    assert {key[6:]: row[key] for key in row if key.startswith("score_")} == scores


def test_the_functions_of_a_script_are_rules(tmp_path: Path) -> None:
    """As in a notebook: workers cannot import the script, which scores when it is imported."""
    script = tmp_path / "scores.py"
    script.write_text(
        "from rmrl import Rewards\n"
        "LIMIT = 3\n"
        "def short(solution_str):\n"
        "    return float(len(solution_str) < LIMIT)\n"
        "with Rewards(short) as rewards:\n"
        "    print(rewards.score(['a', 'b'], ['ab', 'abcd'])['reward'])\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[1.0, 0.0]\n", 0), done.stderr


@pytest.mark.parametrize("name", OTHER_CONFIGS)
def test_what_is_no_configuration_is_a_sentence(name: str) -> None:
    config, sentence = OTHER_CONFIGS[name]
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        Rewards(config)


def test_a_single_value_stands_for_a_list_as_on_the_command_line(folder: Path) -> None:
    section = settings(folder, models="length", weights=0.5)
    with Rewards(section) as rewards:
        assert rewards.score(["p"], ["four"])["reward"] == [0.2]  # 0.5 * 4 / 10
    (folder / "section.yaml").write_text("models: gsm8k\nweights: 2\n")
    reward = compose_config([f"reward={folder}/section.yaml"]).reward
    assert (reward.models, reward.weights) == (["gsm8k"], [2.0])
