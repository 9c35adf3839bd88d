"""What is wrong with an offline job is said before anything is started or written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmrl.cluster.devices import Devices, Machine
from rmrl.cluster.gpu import Gpu
from rmrl.errors import ConfigError, DataError
from rmrl.offline import check_scoring as check
from tests.inputs import rule
from tests.offline.conftest import LENGTH, Bench
from tests.support import fakes


def test_all_problems_at_once(bench: Bench) -> None:
    with pytest.raises(ConfigError) as caught:
        bench.checked(
            "data.batch_size=0",
            "reward.models=[lenght]",
            "out=scored.xlsx",
            "columns=[raw,row]",
            "over_budget=ignore",
            "data.group_key={a: b}",
        )
    problems = "\n".join(caught.value.problems)
    assert "did you mean 'length'" in problems
    assert "data.files is empty" in problems
    assert "data.batch_size=0" in problems
    assert (
        "columns=['raw', 'row']: give some of rendered, raw, read, turns, steps, each once"
        in problems
    )
    assert "over_budget='ignore': not a choice" in problems
    assert "data.group_key={'a': 'b'}: give a column or a list of columns" in problems
    assert "out=scored.xlsx: need a file that ends in .parquet, .jsonl, .csv" in problems


RAISES = rule('return 1.0 if solution_str.startswith("fine") else float(solution_str)')


def test_what_rewards_and_first_rows_show_is_found_in_the_same_round(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.folder / "functions" / "raises.py").write_text(RAISES)
    monkeypatch.setattr(
        "tests.support.fake_reward_engine.FakeEngine.package", "not_there", raising=False
    )
    out = bench.folder / "there.jsonl"
    out.write_text("precious")
    with pytest.raises(ConfigError) as caught:
        bench.checked(
            f"data.files={bench.rows('a', 'b', 'c')}",
            f"out={out}",
            "reward.models=[raises,server,near,quality]",
            "reward.specs.server={kind: remote, url: 'http://127.0.0.1:9/', wire: openrlhf}",
            f"reward.specs.near={{kind: similarity, path: {bench.folder}/scalar-model}}",
            f"reward.specs.quality.path={bench.folder}/scalar-model",
            "columns=[row]",
        )
    problems = "\n".join(caught.value.problems)
    assert "columns=['row']: give some of" in problems
    assert f"out={out} exists already" in problems
    assert (
        f"reward.engine.name={fakes.REWARD_ENGINE} needs the package not_there, which is not installed"
        in problems
    )
    assert "reward 'server': no server answers at http://127.0.0.1:9/" in problems
    assert "reward 'near': row rows.jsonl:0 has no reference: ground_truth" in problems
    assert "reward 'raises' gave no verdict on 3 of 3 trial responses (user_error)" in problems
    assert len(caught.value.problems) == 6


def test_a_device_that_is_not_there_hides_no_unknown_reward(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(device: str) -> Devices:
        raise ConfigError(f"trainer.device={device}, and this machine has no GPU")

    monkeypatch.setattr(check, "local_devices", refused)
    with pytest.raises(ConfigError) as caught:
        bench.checked("reward.models=[nope]", "trainer.device=cuda")
    assert "trainer.device=cuda" in str(caught.value)
    assert "nothing named 'nope'" in str(caught.value)


def test_an_out_that_is_there_hides_no_row_that_cannot_be_read(bench: Bench) -> None:
    out = bench.folder / "there.jsonl"
    out.write_text("precious")
    rows = bench.rows(*["fine"] * 70)
    with Path(rows).open("a") as file:
        file.write("no JSON\n")
    with pytest.raises(ConfigError) as caught:
        bench.checked(f"data.files={rows}", f"out={out}")
    first, second = caught.value.problems
    assert f"out={out} exists already" in first
    assert "rows.jsonl line 71: saw 'no JSON' (str), which is not JSON" in second


def test_a_column_that_is_not_there_is_found_with_the_other_problems(bench: Bench) -> None:
    files = f"data.files={bench.rows('a')}"
    with pytest.raises(ConfigError) as caught:
        bench.checked(
            files, f"out={bench.folder}/s.jsonl", "data.response_key=answer", "columns=[row]"
        )
    problems = "\n".join(caught.value.problems)
    assert "columns=['row']: give some of" in problems
    assert "only the columns prompt, response" in problems
    assert "\n  - row 0 (line 1), column 'answer'" in problems


def test_two_bad_rows_at_the_start_are_no_bad_rule(bench: Bench) -> None:
    (bench.folder / "functions" / "raises.py").write_text(RAISES)
    files = f"data.files={bench.rows('a', 'b', 'c', 'fine')}"
    bench.checked(files, f"out={bench.folder}/s.jsonl", "reward.models=[raises]")
    assert any("on 3 of 4 trial responses" in text for text in bench.notices)


def test_who_only_looks_has_rules_tried_as_well(bench: Bench) -> None:
    (bench.folder / "functions" / "raises.py").write_text(RAISES)
    with pytest.raises(ConfigError, match="reward 'raises' gave no verdict on 1 of 1"):
        bench.checked(f"data.files={bench.rows('a')}", "reward.models=[raises]", needs_out=False)


def test_an_out_that_is_there_is_left_alone(bench: Bench) -> None:
    files = f"data.files={bench.rows('a')}"
    out = bench.folder / "s.jsonl"
    out.write_text("precious")
    with pytest.raises(DataError, match=r"exists already and was left alone; .*overwrite=true"):
        bench.checked(files, f"out={out}")
    bench.checked(files, f"out={out}", "overwrite=true")
    assert out.read_text() == "precious"
    (bench.folder / "there.jsonl").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        bench.checked(files, f"out={bench.folder}/there.jsonl")


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ("s.jsonl", "select=best"),
        ("s.jsonl", "export=sft"),
        ("s.jsonl", "data.on_bad_row=quarantine"),
        ("s.best.jsonl", "select=best"),
        ("s.jsonl.quarantine.jsonl", "data.on_bad_row=quarantine"),
    ],
)
def test_no_file_is_replaced_that_is_read_again(bench: Bench, data: str, key: str) -> None:
    file = bench.rows("a", name=data)
    (bench.folder / "link").symlink_to(bench.folder)
    out = f"out={bench.folder}/link/s.jsonl"
    with pytest.raises(ConfigError, match=rf"would replace .*{data}, which data\.files names"):
        bench.checked(f"data.files={file}", out, "overwrite=true", key)


def test_a_file_can_be_scored_in_place(bench: Bench) -> None:
    file = bench.rows("a")
    bench.score(bench.checked(f"data.files={file}", f"out={file}", "overwrite=true"))
    assert '"reward": 0.1' in file.read_text()


def test_no_out_is_asked_of_who_only_looks(bench: Bench) -> None:
    files = f"data.files={bench.rows('a')}"
    checked = bench.checked(files, needs_out=False)
    assert (checked.out, checked.survey) == (None, None)
    with pytest.raises(ConfigError, match="out is empty"):
        bench.checked(files)


def test_a_bad_row_far_down_stops_it_first(bench: Bench) -> None:
    with pytest.raises(DataError, match="row 299"):
        bench.checked(f"data.files={bench.rows(*['a'] * 299, None)}", f"out={bench.folder}/s.jsonl")
    assert not list(bench.folder.glob("s.jsonl*"))


def test_a_user_sees_rewards_rows_and_the_plan_where_there_are_engines(bench: Bench) -> None:
    files, out = f"data.files={bench.rows('a', ['b', 'c'])}", f"out={bench.folder}/s.jsonl"
    bench.checked(files, out)
    said = "\n".join(bench.notices)
    assert "2 rows with 3 responses" in said
    assert "length  rule" in said
    assert "memory plan" not in said
    model = f"reward.specs.quality.path={bench.folder}/scalar-model"
    bench.checked(files, out, "reward.models=[quality]", model)
    assert "memory plan" in "\n".join(bench.notices)


def test_a_setting_for_cuda_is_checked_on_the_machines_of_the_cluster(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine that starts the job may have no GPU."""
    gpu = Gpu(total_bytes=80 * 2**30, free_bytes=78 * 2**30)
    machine = Machine(gpus=(gpu,), host_free_bytes=100 * 2**30)
    calls: list[str] = []

    def find_devices(device: str, ray_init: Any) -> Devices:
        calls.append(f"{device} {ray_init['address']}")
        return Devices(kind="cuda", machines=(machine,))

    monkeypatch.setattr(check, "find_devices", find_devices)
    checked = bench.checked(
        f"data.files={bench.rows('a')}",
        f"out={bench.folder}/s.jsonl",
        "reward.models=[quality]",
        f"reward.specs.quality.path={bench.folder}/scalar-model",
        "reward.engine.name=vllm",
        "reward.engine.batch_invariant=true",
        "trainer.device=auto",
        "ray_kwargs.ray_init.address=10.0.0.1:6379",
    )
    assert calls == ["auto 10.0.0.1:6379"]
    assert checked.device == "cuda"
    assert [engine.spec.device for engine in checked.engines] == ["cuda"]


def test_older_names_are_translated(bench: Bench) -> None:
    checked = bench.checked(
        f"reward_model.model.path={bench.folder}/judge-model",
        "reward_model.reward_function=judge",
        "reward_model.reward_weight=0.25",
        "reward_model.combine_reward=False",
        f"data.files={bench.rows('a')}",
        f"out={bench.folder}/s.jsonl",
    )
    assert [(spec.kind, spec.weight) for spec in checked.specs] == [("generative", 0.25)]
    assert any("reward_model" in line for line in bench.notices)


def test_rows_name_their_rules_where_no_reward_is_named(bench: Bench) -> None:
    for name in ("gsm8k", "math_verify"):
        (bench.folder / "functions" / f"{name}.py").write_text(LENGTH)
    school = bench.rows("a", name="school.jsonl", data_source="openai/gsm8k")
    contest = bench.rows("a", name="contest.jsonl", data_source="aime2025")
    nothing = ("reward.models=[]", f"out={bench.folder}/s.jsonl")

    alone = bench.checked(f"data.files={school}", *nothing)
    assert [(spec.name, spec.sources) for spec in alone.specs] == [("gsm8k", None)]
    both = bench.checked(f"data.files=[{school},{contest}]", *nothing)
    assert {spec.name: dict(spec.sources or {}) for spec in both.specs} == {
        "gsm8k": {"openai/gsm8k": 1.0},
        "math_verify": {"aime2025": 1.0},
    }
    assert "no reward is named: rows of aime2025 are scored by the rule math_verify" in (
        bench.notices
    )
    other = bench.rows("a", name="other.jsonl", data_source="mine")
    with pytest.raises(ConfigError) as caught:
        bench.checked(f"data.files=[{school},{other}]", *nothing)
    assert "rows of data_source mine have no rule of their own" in str(caught.value)
    assert "reward.models is empty: name at least one reward" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "whole"),
    [
        ((), False),
        (("reward.combine=lexicographic",), True),
        (("reward.transforms.length={kind: rank}",), True),
        (("reward.transforms.length={kind: rank, by: batch}",), False),
        (("reward.transforms.length={kind: standardize, by: group}",), True),
        (("reward.transforms.length={kind: standardize, by: batch}",), False),
    ],
)
def test_who_needs_whole_groups(bench: Bench, settings: tuple[str, ...], whole: bool) -> None:
    checked = bench.checked(f"data.files={bench.rows('a')}", *settings, needs_out=False)
    assert checked.whole_groups is whole


@pytest.mark.parametrize("needs_out", [True, False])
def test_lengths_need_response_tokens_or_a_tokenizer(bench: Bench, needs_out: bool) -> None:
    settings = (
        "reward.transforms.length={kind: overlong, max_length: 8, buffer: 4}",
        f"out={bench.folder}/out.jsonl",
    )
    with pytest.raises(DataError) as error:
        bench.checked(f"data.files={bench.rows('a')}", *settings, needs_out=needs_out)
    assert "row 0 (line 1), column 'response_tokens': saw no number for 'a' (str)" in str(
        error.value
    )
    assert "(the transforms of length depend on them)" in str(error.value)
    assert "or give data.tokenizer=<the policy's folder" in str(error.value)
    file = bench.rows("a", response_tokens=10)
    bench.checked(f"data.files={file}", *settings, needs_out=needs_out)


def test_a_rule_that_reads_lengths_is_tried_with_some_where_there_is_a_tokenizer(
    bench: Bench, tiny_llama: Path
) -> None:
    rule = bench.folder / "lengths.py"
    rule.write_text(
        "def compute_score(reward_inputs):\n"
        "    return [{'overall': each['response_length']} for each in reward_inputs]\n"
    )
    settings = (
        f"data.files={bench.rows('abc')}",
        "reward.models=[long]",
        f"reward.specs.long.function={rule}:compute_score",
    )
    with pytest.raises(ConfigError, match=r"give data\.tokenizer=<the policy's>"):
        bench.checked(*settings, needs_out=False)
    bench.checked(*settings, f"data.tokenizer={tiny_llama}", needs_out=False)


def test_schedules_have_no_place_in_files(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="weight_schedules follow the steps of training"):
        bench.checked(
            f"data.files={bench.rows('a')}",
            "reward.weight_schedules.length=[[0,1.0],[10,0.0]]",
            needs_out=False,
        )
