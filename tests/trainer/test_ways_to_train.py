"""What may be switched on around the loop: a critic, dynamic sampling, a greedy baseline,
corrections, sampling ahead."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmrl.errors import Interrupted
from rmrl.trainer.checkpoint import Unsealed, write_files
from rmrl.trainer.collector import Collector
from rmrl.types import Sampling
from tests.trainer.fake_run import FakeParts, fake_run, records, rollout_engine, train_and_close
from tests.trainer.test_batches import scored, with_old

PPO: dict[str, Any] = {"algorithm__adv_estimator": "gae", "critic__optim__lr": 0.05}
AHEAD: dict[str, Any] = {"trainer__max_staleness": 1}
EVEN_OR_ODD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return float(int(solution_str.split()[0]) % 2)
"""


def go(folder: Path, steps: int, parts: FakeParts | None = None, **changed: Any) -> Path:
    run = fake_run(folder, total_steps=steps, parts=parts, **changed)
    asyncio.run(train_and_close(run))
    return run.out_dir


def metric(out: Path, name: str) -> list[float]:
    return [line[name] for line in records(out / "metrics.jsonl") if name in line]


def trained_prompts(out: Path) -> list[str]:
    """Ids of the prompts of each step, in order."""
    seen: dict[tuple[int, str], None] = {}
    for line in records(out / "samples.jsonl"):
        seen.setdefault((line["step"], line["prompt_id"]))
    return [prompt for _, prompt in seen]


# --- critic


def test_ppo_trains_policy_and_critic(tmp_path: Path) -> None:
    out = go(tmp_path, 12, **PPO)
    rewards = metric(out, "reward/mean")
    assert sum(rewards[-3:]) > sum(rewards[:3])
    assert len(metric(out, "critic/value_loss")) == 12


def test_the_critic_comes_to_expect_what_a_resting_policy_gets(tmp_path: Path) -> None:
    settings = PPO | {"critic__optim__lr": 2.0, "trainer__critic_warmup": 12}
    losses = metric(go(tmp_path, 12, **settings), "critic/value_loss")
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])  # an epoch has 4 steps


def test_only_the_critic_learns_while_it_warms_up(tmp_path: Path) -> None:
    out = go(tmp_path, 4, **PPO, trainer__critic_warmup=2)
    lines = records(out / "metrics.jsonl")
    assert ["policy/loss" in line for line in lines] == [False, False, True, True]
    assert all("critic/value_loss" in line for line in lines)


def test_a_checkpoint_holds_the_critic(tmp_path: Path) -> None:
    out = go(tmp_path, 2, **PPO)
    assert (out / "checkpoints/step_000002/critic").is_dir()
    go(tmp_path, 4, **PPO)
    assert len(metric(out, "critic/value_loss")) == 4


# --- dynamic sampling


def filters(**more: Any) -> dict[str, Any]:
    return {
        "algorithm__filter_groups__enable": True,
        "actor_rollout_ref__rollout__n": 2,
        "code": EVEN_OR_ODD,
        **more,
    }


def test_groups_without_contrast_are_sampled_anew(tmp_path: Path) -> None:
    """Two responses score 0 or 1 each: about half the groups differ, so 4 prompts take about 8."""
    out = go(tmp_path, 4, **filters())
    assert (
        all(rounds > 1 for rounds in metric(out, "group/rounds")[:1])
        or max(metric(out, "group/rounds")) > 1
    )
    for step in range(1, 5):
        lines = [line for line in records(out / "samples.jsonl") if line["step"] == step]
        trained = [line for line in lines if line["advantage"] is not None]
        assert len({line["prompt_id"] for line in trained}) <= 4
        rewards: dict[int, set[float]] = {}
        for number, line in enumerate(lines):
            rewards.setdefault(number // 2, set()).add(line["reward"])
        chosen = {number for number, seen in rewards.items() if len(seen) > 1}
        assert len(chosen) == 4
        assert {
            number // 2 for number, line in enumerate(lines) if line["advantage"] is not None
        } == chosen


def test_the_rounds_of_a_step_are_bounded(tmp_path: Path) -> None:
    out = go(tmp_path, 2, **filters(algorithm__filter_groups__max_num_gen_batches=1))
    assert metric(out, "group/rounds") == [1.0, 1.0]


def test_a_round_may_bring_more_prompts_than_the_step_trains_on(tmp_path: Path) -> None:
    """12 prompts at once: about 6 groups of two differ, and the first 4 of them train."""
    out = go(tmp_path, 2, **filters(data__gen_batch_size=12))
    assert metric(out, "group/rounds")[0] <= 2.0
    lines = [line for line in records(out / "samples.jsonl") if line["step"] == 1]
    assert len(lines) in (24, 48)
    rewards: dict[int, set[float]] = {}
    for number, line in enumerate(lines):
        rewards.setdefault(number // 2, set()).add(line["reward"])
    differ = [number for number, seen in sorted(rewards.items()) if len(seen) > 1]
    assert len(differ) >= 4
    assert (
        sorted({number // 2 for number, line in enumerate(lines) if line["advantage"] is not None})
        == differ[:4]
    )


def test_each_round_of_a_step_draws_anew(tmp_path: Path) -> None:
    """One prompt for ever: with the seed of the first round, a second one would repeat it."""
    parts = FakeParts(engines=[rollout_engine()])
    engine, seeds = parts.engines[0].object, list[int | None]()
    generate = engine.generate

    def noted(prompts: Any, sampling: Any, **more: Any) -> Any:
        seeds.append(sampling.seed)
        return generate(prompts, sampling, **more)

    engine.generate = noted
    out = go(tmp_path, 2, parts, **filters(algorithm__filter_groups__max_num_gen_batches=3))
    assert sum(metric(out, "group/rounds")) == len(seeds) > 2
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({}, False),
        ({"algorithm__use_kl_in_reward": True}, True),
        ({"actor_rollout_ref__actor__ppo_epochs": 2}, True),
        ({"actor_rollout_ref__actor__ppo_mini_batch_size": 2}, True),
        ({"algorithm__rollout_correction__rollout_is": "token"}, True),
        ({"algorithm__rollout_correction__rollout_rs": "sequence"}, True),
    ],
)
def test_old_logprobs_are_computed_where_one_update_cannot_measure_them(
    tmp_path: Path, changes: dict[str, Any], needs: bool
) -> None:
    parts = FakeParts()
    go(tmp_path, 1, parts, **changes)
    assert ("actor.logprobs" in parts.workers[0].calls) == needs


def test_bypass_mode_takes_the_engines_logprobs_for_those_of_the_old_policy(tmp_path: Path) -> None:
    """Two mini-batches a step need old log-probabilities; none is computed, and none differs from
    the engine's."""
    parts = FakeParts()
    settings = {
        "actor_rollout_ref__actor__ppo_mini_batch_size": 2,
        "algorithm__rollout_correction__bypass_mode": True,
    }
    out = go(tmp_path, 2, parts, **settings)
    assert "actor.logprobs" not in parts.workers[0].calls
    assert len(metric(out, "policy/loss")) == 2
    other = FakeParts()
    go(tmp_path / "other", 2, other, actor_rollout_ref__actor__ppo_mini_batch_size=2)
    assert "actor.logprobs" in other.workers[0].calls


def test_a_step_in_which_no_group_has_contrast_trains_on_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = FakeParts()
    always = (
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return"
        " 1.0\n"
    )
    go(tmp_path, 1, parts, **filters(code=always, algorithm__filter_groups__max_num_gen_batches=2))
    assert any("no response" in notice for notice in caplog.messages)


# --- estimators and corrections


def test_remax_samples_a_greedy_response_for_each_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samplings: list[tuple[str, int, float, int | None]] = []
    sample_and_score = Collector.sample_and_score

    async def recorded(
        self: Collector, stage: str, prompts: Any, sampling: Sampling, **more: Any
    ) -> Any:
        seed = None if sampling.seed is None else 0
        samplings.append((stage, sampling.n, sampling.temperature, seed))
        return await sample_and_score(self, stage, prompts, sampling, **more)

    monkeypatch.setattr(Collector, "sample_and_score", recorded)
    parts = FakeParts()
    out = go(tmp_path, 3, parts, algorithm__adv_estimator="remax", actor_rollout_ref__rollout__n=1)
    assert parts.engines[0].calls.count("generate") == 6  # a batch and its baseline in each step
    assert samplings == [("generate", 1, 1.0, 0), ("baseline", 1, 0.0, None)] * 3
    assert len(metric(out, "policy/loss")) == 3
    assert not metric(out, "time/validate_s")  # what it costs is sampling and scoring


def test_rollout_correction_is_measured_on_what_the_engine_returned(tmp_path: Path) -> None:
    out = go(
        tmp_path,
        2,
        algorithm__rollout_correction__rollout_is="token",
        algorithm__rollout_correction__rollout_rs="geometric",
    )
    assert len(metric(out, "rollout_correction/weight_mean")) == 2
    assert all(0 <= share <= 1 for share in metric(out, "rollout_correction/rejected"))


def test_pf_ppo_draws_the_rows_anew(tmp_path: Path) -> None:
    out = go(tmp_path, 2, **PPO, algorithm__use_pf_ppo=True)
    assert all(0 < share < 1 for share in metric(out, "pf_ppo/distinct"))


def test_logprobs_are_compared_over_all_rows_not_over_those_drawn_anew(tmp_path: Path) -> None:
    """Rewards 1, 0, 0, 0 to the power of 2: only the first row is drawn, and it lies 0.4 apart; the
    mean over all is 0.1."""
    run = fake_run(tmp_path, total_steps=1, algorithm__use_pf_ppo=True)
    _, metrics = run.add_advantages(
        with_old(scored([1.0, 0.0, 0.0, 0.0], group_size=4), [0.4, 0.0, 0.0, 0.0])
    )
    assert metrics["pf_ppo/distinct"] == 0.25
    assert metrics["policy/rollout_logprob_diff"] == pytest.approx(0.1)


# --- sampling ahead


def test_one_step_off_trains_each_prompt_once_and_says_how_old_its_samples_were(
    tmp_path: Path,
) -> None:
    out = go(tmp_path, 8, **AHEAD)  # two epochs of 16 prompts
    assert metric(out, "train/staleness") == [0.0] + [1.0] * 7
    assert set(Counter(trained_prompts(out)).values()) == {2}


@pytest.mark.parametrize("ahead", [1, 2])
def test_prompts_under_way_at_a_checkpoint_are_trained_once(
    tmp_path: Path, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted after step 2, with later batches already sampled; the resumed run samples these
    prompts again and loses none."""
    run = fake_run(tmp_path, total_steps=4, trainer__max_staleness=ahead, trainer__save_freq=2)

    async def stop(*args: Any, **options: Any) -> Unsealed:
        unsealed = await write_files(*args, **options)
        run.interrupted = True
        return unsealed

    with monkeypatch.context() as patched:
        # Between two steps. What seals a checkpoint runs beside the next ones.
        patched.setattr("rmrl.trainer.checkpoint.write_files", stop)
        with pytest.raises(Interrupted):
            asyncio.run(train_and_close(run))
    state = json.loads((run.out_dir / "checkpoints/step_000002/trainer.json").read_text())
    assert state["loader"]["position"] == 8
    out = go(tmp_path, 4, trainer__max_staleness=ahead)
    assert Counter(trained_prompts(out)) == Counter({f"train.parquet:{i}": 1 for i in range(16)})


def test_a_failure_while_sampling_ahead_ends_the_run(tmp_path: Path) -> None:
    parts = FakeParts(engines=[rollout_engine()])
    parts.engines[0].dies_on = 12
    run = fake_run(tmp_path, total_steps=50, parts=parts, **AHEAD)
    with pytest.raises(Exception, match="died"):
        asyncio.run(train_and_close(run))


def test_a_checkpoint_waits_for_the_devices_and_lets_the_engines_sleep(tmp_path: Path) -> None:
    """A batch sampled ahead may be scored on the policy's devices; the engines there were woken by
    the last publish."""
    parts = FakeParts()
    run = fake_run(tmp_path, total_steps=1, parts=parts)
    worker, engine = parts.workers[0], parts.engines[0].object

    async def go() -> None:
        await run.resume()
        await run.publish_weights()
        async with run.collector.locks.devices:
            saving = asyncio.create_task(run.finish())
            await asyncio.sleep(0.05)
            assert "actor.save" not in worker.calls
        await saving
        await run.close()

    asyncio.run(go())
    assert worker.calls[-2:] == ["actor.save", "actor.save_hf"]
    assert engine.log[-1] == "sleep 1"
