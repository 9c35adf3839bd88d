"""The policy as judge of its own responses: its rollout engines answer, with the weights that have
sampled; the reference is its first checkpoint, on an engine of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rmrl.cluster.actors import AsyncProcess
from rmrl.cluster.devices import cpu_devices
from rmrl.cluster.progress_deadline import with_progress
from rmrl.config.schema import Config, RewardConfig
from rmrl.errors import EngineLostError, StallError
from rmrl.inference.reward_engine_base import POLICY_ENGINE, GenerateRequest
from rmrl.rewards.entries.listing import reward_table
from rmrl.rewards.entries.resolve import Resolved, Surroundings, resolve_rewards
from rmrl.rewards.entries.section import Policy
from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.residency import Residency, plan_engines
from rmrl.rewards.session.scorer import Scorer
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer.policy_host import PolicyHost
from rmrl.trainer.policy_judge import judge_key, policy_of
from rmrl.trainer.rollouts import RolloutPool
from rmrl.trainer.run import Run
from rmrl.types import Sampling
from tests.patience import PATIENCE_S
from tests.rewards.parts import adapter, checkpoint, engine
from tests.support.fake_processes import FakeProcess
from tests.trainer.fake_run import (
    Characters,
    FakeParts,
    fake_run,
    records,
    rollout_engine,
    rule,
    train_and_close,
)


def judge(*, pool: str = "") -> RewardSpec:
    """A judge of the policy: the score is the number that it writes, here the version of its
    weights."""
    return RewardSpec(
        name="self",
        kind="generative",
        engines={"main": engine(name=POLICY_ENGINE, path="toy", max_model_len=None, pool=pool)},
        options=GenerativeReward.Options(scale=[], rubric="It is odd.", fence=False),
        sampling=Sampling(max_tokens=4, temperature=0.0),
        put_away="sleep1",
        weight=0.0,
    )


def judged_run(
    folder: Path, parts: FakeParts, *, total_steps: int, pool: str = "", **changed: Any
) -> Run:
    """A `fake_run` in which the policy judges beside the rule. `pool`: of the rollout engines."""
    run = fake_run(folder, total_steps=total_steps, parts=parts, **changed)
    rollouts = run.collector.rollouts
    specs = [rule(folder), judge(pool=pool)]
    plans = plan_engines(specs)
    run.config.reward.models = ["parity", "self"]
    run.collector.scorer = Scorer(
        specs,
        run.config.reward,
        residency=Residency(lambda _: PolicyHost(rollouts), plans),
        tokenizer=lambda _: Characters(),
        rule_workers=1,
    )
    run.collector.judge = judge_key(plans)
    return run


def long_engine(replica: int = 0, **script: Any) -> FakeProcess:
    process = rollout_engine(replica=replica, **script)
    process.object.settings = Settings(process.object.settings)
    return process


class Settings:
    """The settings of an engine that reads 4096 tokens."""

    max_model_len = 4096

    def __init__(self, settings: Any) -> None:
        self._settings = settings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._settings, name)


def test_the_weights_that_sampled_judge_in_training_and_validation(tmp_path: Path) -> None:
    parts = FakeParts(engines=[long_engine(0), long_engine(1)])
    run = judged_run(
        tmp_path,
        parts,
        total_steps=3,
        data__val_files=str(tmp_path / "val.parquet"),
        trainer__test_freq=1,
    )
    engines = [process.object for process in parts.engines]
    asyncio.run(asyncio.wait_for(train_and_close(run), 60))
    validated = records(tmp_path / "run" / "metrics.jsonl")
    found = validated[1:]  # the first line is the validation before training
    # step s trains on responses of version s - 1, and they are judged by it
    assert [line["score/self/mean"] for line in found] == [0.0, 1.0, 2.0]
    assert [line["val/self"] for line in validated] == [0.0, 1.0, 2.0, 3.0]
    for line in records(tmp_path / "run" / "samples.jsonl"):
        assert line["scores"]["self"]["raw"] == str(line["step"] - 1)
    assert found[0]["engine/self/sleeps"] == 1
    for fake in engines:
        # awake from sampling to judging, asleep for training, no copy of what is replaced
        first = fake.log.index(next(entry for entry in fake.log if entry.startswith("answer")))
        assert fake.log[first + 1] == "sleep 1"
        # 4 prompts x 4 responses of a step, and 6 of validation, over two engines
        counts = [int(entry.split()[1]) for entry in fake.log if entry.startswith("answer")]
        assert counts == [3, 8, 3, 8, 3, 8, 3]


def test_two_steps_ask_anew(tmp_path: Path) -> None:
    """Equal requests of different steps are not answered from a store of verdicts."""
    parts = FakeParts(engines=[long_engine(text="1 1")])
    run = judged_run(
        tmp_path, parts, total_steps=2, reward__cache__path=str(tmp_path / "verdicts.sqlite")
    )
    fake = parts.engines[0].object
    asyncio.run(asyncio.wait_for(train_and_close(run), 60))
    found = records(tmp_path / "run" / "metrics.jsonl")
    assert [line["score/self/mean"] for line in found] == [0.0, 1.0]
    assert [line["score/self/cache_hits"] for line in found] == [0.0, 0.0]
    # the four equal responses to a prompt are asked about once
    counts = [entry for entry in fake.log if entry.startswith("answer")]
    assert counts == ["answer 4", "answer 4"]
    assert [line["score/self/duplicates"] for line in found] == [0.75, 0.75]


def test_in_a_pool_it_judges_while_others_are_sampled(tmp_path: Path) -> None:
    """One step off: the batch that is sampled ahead is judged by the weights that sample it."""
    parts = FakeParts(engines=[long_engine(delay_s=0.01)])
    run = judged_run(tmp_path, parts, total_steps=4, pool="sampling", trainer__max_staleness=1)
    fake = parts.engines[0].object
    assert run.collector.judge is None
    asyncio.run(asyncio.wait_for(train_and_close(run), 60))
    found = records(tmp_path / "run" / "metrics.jsonl")
    # batch s is sampled from version s - 1, or from s where the update came first
    for line in records(tmp_path / "run" / "samples.jsonl"):
        assert line["scores"]["self"]["raw"] == str(line["policy_version"])
    assert found[0]["perf/streamed/self"] > 0
    counts = [int(entry.split()[1]) for entry in fake.log if entry.startswith("answer")]
    assert sum(counts) == 4 * 16
    assert len(counts) > 4  # not once for each batch
    assert not any(entry.startswith("sleep") for entry in fake.log)


class DiesWhenAsked(FakeProcess):
    """Its process dies at the first request of a reward."""

    async def call(self, method: str, *args: Any, timeout_s: float, **kwargs: Any) -> Any:
        if method == "answer":
            self.object = None
            raise EngineLostError(f"the process of {self.name}.answer died")
        return await super().call(method, *args, timeout_s=timeout_s, **kwargs)


def test_a_rollout_engine_that_is_lost_while_it_judges_is_started_again(tmp_path: Path) -> None:
    whole = long_engine()
    started: list[FakeProcess] = []

    async def start(number: int) -> FakeProcess:
        started.append(long_engine(number))
        return started[-1]

    parts = FakeParts(engines=[DiesWhenAsked(whole.object, whole.name), long_engine(1)])
    parts.start = start
    run = judged_run(tmp_path, parts, total_steps=2)
    asyncio.run(asyncio.wait_for(train_and_close(run), 60))
    found = records(tmp_path / "run" / "metrics.jsonl")
    assert len(started) == 1
    assert [line["score/self/mean"] for line in found] == [0.0, 1.0]
    assert [line.get("score/self/missing", 0.0) for line in found] == [0.0, 0.0]
    # it judges with the published weights, not with those of its checkpoint
    assert started[0].object is None or started[0].object.version >= 0


async def test_a_loss_that_cannot_be_mended_is_raised() -> None:
    whole = rollout_engine()
    pool = RolloutPool([DiesWhenAsked(whole.object, whole.name)], timeout_s=PATIENCE_S, sleeps=True)  # type: ignore[list-item]
    with pytest.raises(EngineLostError, match=r"answer died"):
        await pool.answer([GenerateRequest((1,), Sampling(max_tokens=1))], timeout_s=PATIENCE_S)


class Patient(FakeProcess):
    """Its calls run in the actor of a rollout engine, with the deadline of RayProcess."""

    async def call(self, method: str, *args: Any, timeout_s: float, **kwargs: Any) -> Any:
        actor = self.actor
        work = actor.call(method, *args, **kwargs)
        try:
            return await with_progress(work, timeout_s=timeout_s, progress=actor.progress)
        except TimeoutError as error:
            raise StallError(f"{method} stalled") from error

    @property
    def actor(self) -> AsyncProcess:
        if not hasattr(self.object, "actor"):
            self.object.actor = AsyncProcess()
            self.object.actor._object = self.object
        return self.object.actor


def patient_pool(**script: Any) -> RolloutPool:
    whole = rollout_engine(**script)
    return RolloutPool([Patient(whole.object, whole.name)], timeout_s=PATIENCE_S, sleeps=True)  # type: ignore[list-item]


@pytest.mark.virtual_time
async def test_judging_may_take_longer_than_the_deadline_of_one_answer() -> None:
    """20 answers of 5 s are 100 s, against a deadline of 40 s without any answer."""
    pool = patient_pool(answer_s=5.0, judge="7")
    requests = [GenerateRequest((1,), Sampling(max_tokens=1))] * 20
    for number in range(2):  # what came before is no progress of the second call
        answers = await pool.answer(requests, timeout_s=40.0)
        assert asyncio.get_running_loop().time() == 100 * (number + 1)
        assert [texts[0].text for texts in answers] == ["7"] * 20


@pytest.mark.virtual_time
async def test_an_engine_that_hangs_while_it_judges_is_a_stall() -> None:
    pool = patient_pool(answer_s=0.0, judge="7")
    requests = [GenerateRequest((1,), Sampling(max_tokens=1))] * 3
    await pool.answer(requests, timeout_s=60.0)
    pool.engines[0].object._script["answer_s"] = 600.0  # type: ignore[attr-defined]
    with pytest.raises(StallError, match="answer stalled"):
        await pool.answer(requests, timeout_s=40.0)
    # one deadline, not two: the three answers before are no progress of this call
    assert asyncio.get_running_loop().time() == 40
    assert await pool.engines[0].actor.progress() == 0


async def test_judging_waits_for_sampling_that_advances(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer comes after 20 samples, which are progress of its call."""
    looks: list[Callable[[], Awaitable[int]]] = []

    async def without_deadline(
        call: Awaitable[object], *, timeout_s: float, progress: Callable[[], Awaitable[int]]
    ) -> object:
        del timeout_s
        looks.append(progress)
        return await call

    monkeypatch.setitem(globals(), "with_progress", without_deadline)
    pool = patient_pool(delay_s=0.02)
    actor = pool.engines[0].actor

    async def sample() -> None:
        stream = actor.stream("generate", [[1]], Sampling(max_tokens=1, n=20))
        async for _ in stream:
            pass
        sampled.set()

    sampled = asyncio.Event()
    sampling = asyncio.create_task(sample())
    engine = pool.engines[0].object  # type: ignore[attr-defined]
    whole = engine.answer

    async def behind(requests: Any) -> Any:
        await sampled.wait()
        return await whole(requests)

    engine.answer = behind
    requests = [GenerateRequest((1,), Sampling(max_tokens=1))]
    answering = asyncio.create_task(pool.answer(requests, timeout_s=60.0))
    count = 0
    async with asyncio.timeout(60):
        for _ in range(4):
            while not looks or await looks[0]() <= count:
                await asyncio.sleep(0.001)
            count = await looks[0]()
        assert not answering.done()
        assert len(await answering) == 1
    await sampling


async def test_what_does_not_fit_is_overlong() -> None:
    pool = RolloutPool([rollout_engine()], timeout_s=PATIENCE_S, sleeps=True)  # type: ignore[list-item]
    requests = [GenerateRequest((1,) * n, Sampling(max_tokens=1, n=2)) for n in (72, 71)]
    overlong, fits = await pool.answer(requests, timeout_s=PATIENCE_S)
    assert [output.failure for output in (*overlong, *fits)] == ["overlong"] * 2 + [""] * 2


# --- the configuration


@pytest.fixture
def config(tmp_path: Path) -> Config:
    checkpoint(tmp_path / "policy-model")
    config = Config()
    config.actor_rollout_ref.model.path = str(tmp_path / "policy-model")
    config.actor_rollout_ref.rollout.max_model_len = 4096
    config.data.max_prompt_length = config.data.max_response_length = 512
    return config


def resolved(config: Config | None, **entries: Any) -> Resolved:
    policy: Policy | None = None if config is None else policy_of(config, cpu_devices())
    section = {"rubric": "It is good."} | entries
    if section.get("kind") == "teacher":
        del section["rubric"]
    around = Surroundings(device="cpu", threads=1, functions_dirs=[Path("x")], policy=policy)
    return resolve_rewards(RewardConfig(models=["judge"], specs={"judge": section}), around)


def test_the_policy_is_its_rollout_engines(config: Config) -> None:
    found = resolved(config, path="policy")
    assert found.problems == []
    (spec,) = found.specs
    assert spec.kind == "generative"
    assert spec.engines["main"].name == POLICY_ENGINE
    assert spec.engines["main"].path == config.actor_rollout_ref.model.path
    assert "the policy (policy-model, its rollout engines)" in reward_table(found.specs)
    (plan,) = plan_engines(found.specs)
    assert (plan.put_away, plan.residency) == ("sleep1", "auto")


def test_the_reference_is_an_engine_of_its_own(config: Config) -> None:
    (spec,) = resolved(config, path="reference").specs
    assert spec.engines["main"].name == "vllm"
    assert spec.engines["main"].path == config.actor_rollout_ref.model.path
    (both,) = resolved(config, path="reference", engine={"max_model_len": 64}).specs
    assert both.engines["main"].max_model_len == 64


def test_a_folder_of_that_name_is_a_checkpoint(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint(tmp_path / "policy")
    (spec,) = resolved(config, path="policy").specs
    assert (spec.engines["main"].name, spec.engines["main"].path) == ("vllm", "policy")


def test_a_teacher_is_another_model_than_the_policy(config: Config) -> None:
    (problem,) = resolved(config, path="policy", kind="teacher").problems
    assert problem.startswith("reward.specs.judge.path=policy: rollout engines rate no given")
    assert "or path=reference for the policy's start" in problem
    assert resolved(config, path="reference", kind="teacher").problems == []


@pytest.mark.parametrize("path", ["policy", "reference"])
def test_without_a_policy_a_checkpoint_is_asked_for(path: str) -> None:
    (problem,) = resolved(None, path=path).problems
    assert problem.startswith(f"reward.specs.judge.path={path}: no policy trains here; give its")
    assert "reward.specs.judge.path=<folder or hub id>" in problem


@pytest.mark.parametrize(
    ("changes", "entries", "sentence"),
    [
        ({}, {"engine": {"max_model_len": 64}}, "leave engine out"),
        ({}, {"kind": "process", "rubric": None}, "a process reward needs a token_pooling model"),
        ({"max_model_len": None}, {}, "max_model_len=None has room for prompt and response alone"),
        ({"max_model_len": 1024}, {}, "set it to more than 1024, e.g. 1536"),
        ({"name": "sglang"}, {}, "rollout.name=sglang answers no requests of rewards"),
    ],
)
def test_what_the_policy_cannot_judge(
    config: Config, changes: dict[str, Any], entries: dict[str, Any], sentence: str
) -> None:
    for name, value in changes.items():
        setattr(config.actor_rollout_ref.rollout, name, value)
    given = {"path": "policy", "rubric": "It is good."} | entries
    if given["rubric"] is None:
        del given["rubric"]
    policy = policy_of(config, cpu_devices())
    around = Surroundings(device="cpu", threads=1, functions_dirs=[Path("x")], policy=policy)
    found = resolve_rewards(RewardConfig(models=["judge"], specs={"judge": given}), around)
    (problem,) = found.problems
    assert problem.startswith("reward.specs.judge.path=policy: ")
    assert sentence in problem


def test_an_adapter_is_refused_beside_the_policy(config: Config, tmp_path: Path) -> None:
    (problem,) = resolved(config, path="policy", adapter=str(adapter(tmp_path / "lora"))).problems
    assert "leave adapter out, or write path=reference for an engine of its own" in problem
    (spec,) = resolved(config, path="reference", adapter=str(tmp_path / "lora")).specs
    assert spec.engines["main"].adapter == str(tmp_path / "lora")
