"""Identity of a reward for its calibration: what it depends on, and what it does not."""

from __future__ import annotations

import shutil

import pytest

from rmrl.rewards.calibration.check import calibration_problems, map_of
from rmrl.rewards.calibration.digest import PARTS, differing_parts, reward_digest
from rmrl.rewards.specs.spec import RewardSpec
from tests.offline.conftest import Bench
from tests.rewards import parts

JUDGE = ("reward.models=[judge]", "reward.specs.judge.path={folder}/judge-model")


def spec_of(bench: Bench, *overrides: str) -> RewardSpec:
    given = [text.format(folder=bench.folder) for text in (*JUDGE, *overrides)]
    (spec,) = bench.checked(*given, needs_out=False, needs_files=False).specs
    return spec


SAME = {
    "the weight": ["reward.weights=[3]"],
    "a transform": ["reward.specs.judge.transform=sigmoid"],
    "missing verdicts": ["reward.specs.judge.on_missing=fail"],
    "speed": ["reward.engine.max_num_seqs=4", "reward.specs.judge.timeout_s=50"],
    "a copy of the checkpoint": ["reward.specs.judge.path={folder}/copy"],
}
OTHER = {
    "sampling": (["reward.specs.judge.sampling.max_tokens=7"], ["sampling"]),
    "the context length": (["reward.engine.max_model_len=64"], ["model"]),
    "another checkpoint": (["reward.specs.judge.path={folder}/other-model"], ["model"]),
    "an entry": (["reward.specs.judge.overlong=truncate_left"], ["entries"]),
    "the prompt's column": (["reward.specs.judge.rm_prompt=3"], ["entries"]),
}


@pytest.fixture
def models(bench: Bench) -> Bench:
    shutil.copytree(bench.folder / "judge-model", bench.folder / "copy")
    other = parts.checkpoint(bench.folder / "other-model")
    (other / "config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 512, "more": 1}'
    )
    return bench


@pytest.mark.parametrize("name", SAME)
def test_what_leaves_the_score_alone_is_no_part_of_it(models: Bench, name: str) -> None:
    assert reward_digest(spec_of(models, *SAME[name])) == reward_digest(spec_of(models))


@pytest.mark.parametrize("name", OTHER)
def test_what_changes_the_score_changes_its_part(models: Bench, name: str) -> None:
    overrides, changed = OTHER[name]
    first = reward_digest(spec_of(models))
    second = reward_digest(spec_of(models, *overrides))
    assert differing_parts(first, second) == [PARTS[part] for part in changed]


def test_the_code_of_prompt_and_parser_counts(models: Bench) -> None:
    before = reward_digest(spec_of(models))
    file = models.folder / "functions" / "judge.py"
    file.write_text(file.read_text() + "\n# another parser\n")
    assert differing_parts(before, reward_digest(spec_of(models))) == [PARTS["code"]]


def test_an_ensemble_depends_on_its_members(bench: Bench) -> None:
    given = (
        "reward.models=[panel]",
        "reward.specs.panel={kind: ensemble, of: [length, judge]}",
        f"reward.specs.judge.path={bench.folder}/judge-model",
    )
    specs = bench.checked(*given, needs_out=False, needs_files=False).specs
    before = reward_digest(specs[0], specs)
    changed = (*given, "reward.specs.judge.sampling.max_tokens=7")
    specs = bench.checked(*changed, needs_out=False, needs_files=False).specs
    assert differing_parts(before, reward_digest(specs[0], specs)) == [PARTS["members"]]


def test_a_reward_without_a_calibration_has_no_problem(bench: Bench) -> None:
    spec = spec_of(bench, "reward.specs.judge.transform=sigmoid")
    assert map_of(spec) is None
    assert list(calibration_problems([spec])) == []
