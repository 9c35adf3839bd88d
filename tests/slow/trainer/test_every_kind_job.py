"""One training job with every kind of reward at once, the policy and its own first checkpoint among
the judges, on tiny random models behind real vLLM, sentence-transformers and HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmrl.rewards.kinds import REWARD_KINDS
from tests.engine_models import write_encoder, write_token_scorer
from tests.faults.injections import FINE, answer
from tests.rewards.remote.server import serving
from tests.trainer.job import Job, finish

NAMES = (
    "letters",
    "judge",
    "guided",
    "yes_no",
    "criteria",
    "quality",
    "criticised",
    "steps",
    "taught",
    "close",
    "served",
    "coded",
    "compared",
    "both",
    "self",
    "first",
)
STEPS = 3
SCORED = "score_tokens: {a: 1, b: 0}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path, tiny_reward_llama: Path) -> Any:
    """(printed, metrics, samples) of three steps and a validation. The judges share one engine,
    the scalar models another."""
    folder = tmp_path_factory.mktemp("every")
    token_scorer, encoder = (
        write_token_scorer(folder / "steps", labels=2),
        write_encoder(folder / "encoder"),
    )
    with serving(answer(FINE)) as server:
        specs: dict[str, object] = {
            "judge.path": tiny_llama,
            # Every vote can be read, so a second model has to choose.
            "guided": (
                "{kind: generative, sampling: {n: 3, temperature: 1.0, max_tokens: 2, choice: ['1',"
                " '2', '3']}, meta: {keep: 1, path: " + str(tiny_reward_llama) + "}}"
            ),
            "guided.path": tiny_llama,
            "yes_no": "{kind: generative, rubric: short, score_tokens: {a: 1, b: 0}}",
            "yes_no.path": tiny_llama,
            "criteria": (
                "{kind: rubric, dropout: 0.5, criteria: [{text: short, choices: [a, b]}, {text:"
                " odd, weight: -1, choices: [a, b]}]}"
            ),
            "criteria.path": tiny_llama,
            "quality": "{kind: bradley_terry, transform: [{kind: standardize, by: group}]}",
            "quality.path": tiny_reward_llama,
            "criticised": (
                "{kind: critique, sampling: {max_tokens: 6}, scorer: {path: "
                + str(tiny_reward_llama)
                + "}}"
            ),
            "criticised.path": tiny_llama,
            "steps": "{kind: process, separator: ' '}",
            "steps.path": token_scorer,
            "taught": "{kind: teacher}",
            "taught.path": tiny_llama,
            "close": "{kind: similarity}",
            "close.path": encoder,
            "served": "{kind: remote, wire: slime, gate: letters, url: '" + server.url + "'}",
            "coded": (
                "{kind: code, where: sandbox_fusion, tests: ground_truth, needs_block: false, url: '"
                + server.url
                + "'}"
            ),
            "compared": "{kind: group, max_pairs: 3, sampling: {max_tokens: 2}}",
            "compared.path": tiny_llama,
            "both": "{kind: ensemble, of: [quality, close], how: min}",
            "self": f"{{path: policy, {SCORED}}}",
            "first": f"{{path: reference, {SCORED}, engine: {{max_model_len: 1024}}}}",
        }
        keys = {
            "reward.models": f"[{','.join(NAMES)}]",
            "reward.weights": "[1.0,0.5,0.1,0.25,0.2,0.25,0.1,0.5,0.5,0.2,0.01,0.1,0.3,0.2,0.5,0.0]",
            "reward.max_missing": 1.0,
            "reward.on_missing": "renormalize",
            "reward.engine.max_model_len": 1024,
            "reward.engine.dtype": "float32",
            "reward.cache.path": folder / "verdicts.sqlite",
            "actor_rollout_ref.rollout.max_model_len": 1024,
            "data.val_files": folder / "train.parquet",
            "trainer.val_before_train": False,
            "trainer.test_freq": STEPS,
            **{f"reward.specs.{key}": value for key, value in specs.items()},
        }
        job = Job(
            folder=folder, policy=tiny_llama, scalar=tiny_reward_llama, overrides=keys
        ).prepare()
        code, printed = finish(job.start("run", trainer__total_training_steps=STEPS))
    assert code == 0, printed
    return printed, job.lines("run"), job.lines("run", "samples.jsonl")


def test_every_kind_is_there(run: Any) -> None:
    words = [line.split() for line in run[0].splitlines()]
    # A source plays the responses of the rest: tests/slow/environments.
    kinds = [kind for kind in REWARD_KINDS if REWARD_KINDS[kind].reads_responses]
    assert len(kinds) == len(REWARD_KINDS) - 1
    assert [kind for kind in kinds if not any(kind in line for line in words)] == []


def test_every_component_gives_verdicts(run: Any) -> None:
    _, metrics, _ = run
    given = {name: metrics[-1].get(f"score/{name}/mean") for name in NAMES}
    readable = {name for name, mean in given.items() if mean is not None}
    # A random judge writes nothing that a drop-in could misread; a random model of pairs may be of
    # no use at all.
    assert readable >= set(NAMES) - {"compared", "criticised"}, given


def test_criteria_are_columns_and_metrics(run: Any) -> None:
    _, metrics, samples = run
    assert 0 < metrics[-1]["score/criteria/extra_criterion_1"] < 1
    assert metrics[-1]["score/criteria/criteria_dropped"] == 0.5  # of two the fault
    extra = samples[-1]["scores"]["criteria"]["extra"]
    assert [record["text"] for record in extra["criteria"]] == ["short"]
    assert extra["criterion_1"] == extra["criteria"][0]["value"]


def test_a_second_model_chooses_one_of_three_votes(run: Any) -> None:
    _, metrics, samples = run
    assert "score/guided/extra_meta_shift" in metrics[-1]
    chosen = [sample["scores"]["guided"] for sample in samples]
    assert chosen
    for result in chosen:
        extra = result["extra"]
        place = extra["kept"].index(True)
        assert sum(extra["kept"]) == 1
        assert extra["meta"][place] == max(extra["meta"])
        assert extra["on_scale"] == extra["votes"][place]
        assert result["score"] == (extra["on_scale"] - 1) / 2


def test_one_checkpoint_is_loaded_once_however_many_rewards_ask_it(run: Any) -> None:
    _, metrics, _ = run
    loads = {
        k: v
        for m in metrics
        for k, v in m.items()
        if k.startswith("engine/") and k.endswith("/loads")
    }
    assert set(loads.values()) == {1.0}
    # the judges', the scalar models', the step scorer, the encoder, the policy
    assert len(loads) == 5


def test_scores_of_steps_reach_the_tokens(run: Any) -> None:
    _, _, samples = run
    stepped = [s for s in samples if s["scores"]["steps"].get("steps")]
    assert stepped
    last = stepped[0]["scores"]["steps"]["steps"][-1]
    assert last[0] <= len(stepped[0]["response"])
    assert json.dumps(stepped[0])


def test_a_teacher_that_is_the_policys_checkpoint_has_nothing_to_say_at_first(run: Any) -> None:
    """vLLM rates in float32 what FSDP computes in float32; after an update the policy has moved."""
    _, metrics, _ = run
    assert abs(metrics[0]["score/taught/log_ratio"]) < 1e-5
    assert metrics[0]["score/taught/clipped"] == 0.0
    assert abs(metrics[1]["score/taught/log_ratio"]) > abs(metrics[0]["score/taught/log_ratio"])


def test_the_policy_and_its_reference_agree_until_it_has_learned(run: Any) -> None:
    printed, metrics, samples = run
    assert "the policy (" in printed
    for line in metrics:
        assert line.get("score/self/missing", 0.0) == 0.0
    differences: dict[int, list[float]] = {}
    for line in samples:
        now = line["scores"]["self"]
        assert now["score"] is not None, json.dumps(now)
        change = abs(now["score"] - line["scores"]["first"]["score"])
        differences.setdefault(line["step"], []).append(change)
    # the responses of step 1 are judged by the weights that both begin with
    assert max(differences[1]) < 1e-3
    assert max(differences[STEPS]) > 1e-3
    assert metrics[-1]["val/self"] != pytest.approx(metrics[-1]["val/first"], abs=1e-4)
    assert metrics[0]["engine/self/loads"] == 1
    # counted with the next batch, as it happens after a batch is scored
    assert (metrics[1]["engine/self/sleeps"], metrics[1]["engine/self/wakes"]) == (1, 1)
