"""A whole `Run` in one process: fake rollout engine, toy learner, a real rule; real loop, loader,
scorer, checkpoints and logs.

    run = fake_run(tmp_path, total_steps=5)
    asyncio.run(train_and_close(run))

The rule `parity` scores the share of odd tokens in a response, so a learner that works makes odd
tokens likelier.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmrl.algorithms import estimator_named
from rmrl.algorithms.kl import KLController
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.worker import TrainWorker
from rmrl.cluster.file_broadcast import NodeFiles
from rmrl.cluster.worker_group import WorkerGroup
from rmrl.config.schema import Config
from rmrl.data.dataset import PromptTable, load_prompts
from rmrl.data.write import write_rows
from rmrl.errors import EngineLostError
from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.rewards.dropins.dropin import FunctionSource
from rmrl.rewards.residency import Residency
from rmrl.rewards.session.monitor import Monitor
from rmrl.rewards.session.scorer import Scorer
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.telemetry.clock import StepClock
from rmrl.telemetry.hints import HintFile
from rmrl.telemetry.sinks import SinkContext, open_sinks
from rmrl.telemetry.transcripts import SampleWriter
from rmrl.trainer.check_algorithm import critic_settings, needs_critic
from rmrl.trainer.check_run import prompt_loader
from rmrl.trainer.collector import Collector
from rmrl.trainer.loop import train
from rmrl.trainer.measures import Measures
from rmrl.trainer.policy import Models, TrainedModel, TrainGroup
from rmrl.trainer.publish import Publisher
from rmrl.trainer.records import Telemetry
from rmrl.trainer.rollouts import RolloutPool
from rmrl.trainer.run import Run
from rmrl.trainer.throughput import Throughput
from tests.patience import PATIENCE_S
from tests.support import fakes
from tests.support.fake_processes import FakeHost, FakeProcess
from tests.support.fake_rollout import FakeRollout

PARITY = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    tokens = [int(word) for word in solution_str.split()]
    return sum(token % 2 for token in tokens) / len(tokens)
"""
NOTHING = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return None
"""


class Characters:
    """A tokenizer: one token per character, messages joined by lines."""

    chat_template = "plain"

    def apply_chat_template(self, conversations: Sequence[Any], **settings: Any) -> Any:
        one = isinstance(conversations[0], Mapping)
        texts = [
            "\n".join(m["content"] for m in messages)
            for messages in ([conversations] if one else conversations)
        ]
        return texts[0] if one else texts

    def __call__(self, texts: Sequence[str], **settings: Any) -> dict[str, list[list[int]]]:
        return {"input_ids": [[ord(c) for c in text] for text in texts]}

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


def small_config(folder: Path, **changed: Any) -> Config:
    """16 prompts in batches of 4, 4 responses each. `changed` names keys with __ for dots, e.g.
    trainer__seed=2."""
    config = Config()
    config.algorithm.adv_estimator = "grpo"
    config.data.train_files = str(folder / "train.parquet")
    config.data.train_batch_size, config.data.max_prompt_length, config.data.max_response_length = (
        4,
        64,
        8,
    )
    part = config.actor_rollout_ref
    part.model.path = "toy"
    part.actor.strategy, part.actor.ppo_mini_batch_size, part.actor.optim.lr = fakes.BACKEND, 4, 2.0
    part.rollout.name, part.rollout.n = fakes.ROLLOUT, 4
    config.reward.models, config.reward.max_missing = ["parity"], 1.0
    config.trainer.logger, config.trainer.default_local_dir = ["jsonl"], str(folder / "run")
    for key, value in changed.items():
        set_key(config, key.replace("__", "."), value)
    return config


def set_key(config: Any, key: str, value: Any) -> None:
    *path, last = key.split(".")
    for name in path:
        config = getattr(config, name)
    assert hasattr(config, last), key
    setattr(config, last, value)


@dataclass(slots=True)
class FakeParts:
    """What a test may want to look into."""

    host: FakeHost = field(default_factory=FakeHost)
    engines: list[FakeProcess] = field(default_factory=list)
    workers: list[FakeProcess] = field(default_factory=list)
    start: Any = None
    """See RolloutPool."""


def prompts(config: Config, *, split: str = "train", count: int = 16) -> PromptTable:
    """Writes `count` rows and loads them as a run does."""
    path = Path(str(getattr(config.data, f"{split}_files")))
    sources = ("numbers", "letters")
    rows = [
        {"prompt": [{"role": "user", "content": f"{split} {i}"}], "data_source": sources[i % 2]}
        for i in range(count)
    ]
    write_rows(path, rows, overwrite=True)
    return load_prompts(config.data, Characters(), split=split)  # type: ignore[arg-type]


def rollout_engine(*, replica: int = 0, **script: Any) -> FakeProcess:
    """A started fake engine. `script`: see tests.support.fake_rollout."""
    settings = RolloutEngineSettings.of(
        Config().actor_rollout_ref.rollout,
        path="toy",
        tokenizer=None,
        device="cpu",
        threads=1,
        max_model_len=72,
        trust_remote_code=False,
        seed=replica,
        kwargs={"vocabulary": 64, "lengths": [1, 10], **script},
    )
    engine = FakeRollout(settings)
    engine._state = "awake"
    return FakeProcess(engine, f"rollout-{replica}")


@dataclass
class DiesInTheMiddle(FakeProcess):
    """Its process dies when it is to give one sample more than `after`, over all its streams."""

    after: int = 0
    given: int = 0

    async def stream(self, method: str, *args: Any, timeout_s: float) -> AsyncIterator[Any]:
        async for part in super().stream(method, *args, timeout_s=timeout_s):
            if self.given == self.after:
                self.object = None
                raise EngineLostError(f"the process of {self.name}.{method} died")
            self.given += 1
            yield part


def dying(*, after: int, replica: int = 0) -> FakeProcess:
    """`rollout_engine` whose process dies after this many samples."""
    whole = rollout_engine(replica=replica)
    return DiesInTheMiddle(whole.object, whole.name, after=after)


def train_worker(
    config: Config, *, total_steps: int = 100, reference: bool = False, rank: int = 0
) -> FakeProcess:
    shared = {
        "model": config.actor_rollout_ref.model,
        "actor": config.actor_rollout_ref.actor,
        "total_steps": total_steps,
    }
    actor = TrainSettings(role="actor", **shared)
    engines = {
        "actor": actor,
        **({"ref": TrainSettings(role="ref", **shared)} if reference else {}),
    }
    if needs_critic(config):
        engines["critic"] = TrainSettings(role="critic", critic=critic_settings(config), **shared)
    return FakeProcess(TrainWorker(engines, ProcessSettings()), f"train-{rank}")


def rule(folder: Path, *, name: str = "parity", code: str = PARITY) -> RewardSpec:
    path = folder / f"{name}.py"
    path.write_text(code)
    return RewardSpec(name=name, kind="rule", weight=1.0, function=FunctionSource(str(path)))


def fake_run(
    folder: Path,
    *,
    total_steps: int,
    parts: FakeParts | None = None,
    code: str = PARITY,
    watchers: Sequence[RewardSpec] = (),
    monitor: Monitor | None = None,
    scorer: type[Scorer] = Scorer,
    **changed: Any,
) -> Run:
    """A run as build.py makes it, of fakes. `changed`: see small_config."""
    parts = parts or FakeParts()
    config = small_config(folder, **changed)
    reference = config.actor_rollout_ref.actor.use_kl_loss or config.algorithm.use_kl_in_reward
    out = Path(str(config.trainer.default_local_dir))
    parts.workers[:] = [train_worker(config, reference=reference)]
    parts.engines[:] = parts.engines or [rollout_engine()]

    def telemetry(resume_step: int | None) -> Telemetry:
        context = SinkContext(
            out_dir=out,
            project="p",
            experiment="e",
            total_steps=total_steps,
            resume_step=resume_step,
        )
        samples, val = out / "samples.jsonl", out / "val_samples.jsonl"
        return Telemetry(
            sinks=open_sinks(config.trainer.logger, context),
            samples=SampleWriter(samples, resume_step=resume_step),
            val_samples=SampleWriter(val, resume_step=resume_step),
            hints=HintFile(out, resume_step=resume_step),
        )

    group = TrainGroup(WorkerGroup(parts.workers), timeout_s=PATIENCE_S, offloads=False)  # type: ignore[arg-type]
    models = Models(
        TrainedModel(group, "actor"),
        reference=TrainedModel(group, "ref") if reference else None,
        critic=TrainedModel(group, "critic") if needs_critic(config) else None,
    )
    sleeps = (
        config.actor_rollout_ref.rollout.free_cache_engine and not config.trainer.max_staleness
    )  # ahead: in a pool, always awake
    pool = RolloutPool(parts.engines, timeout_s=PATIENCE_S, sleeps=sleeps, start=parts.start)  # type: ignore[arg-type]
    return Run(
        config=config,
        out_dir=out,
        total_steps=total_steps,
        loader=None if config.trainer.val_only else prompt_loader(config, prompts(config)),
        val_prompts=prompts(config, split="val", count=6) if config.data.val_files else None,
        models=models,
        collector=Collector(
            config=config,
            rollouts=pool,
            scorer=scorer(
                [rule(folder, code=code), *watchers],
                config.reward,
                residency=Residency(lambda _: parts.host, []),
                tokenizer=lambda _: Characters(),
                rule_workers=1,
            ),
            clock=StepClock(),
            greedy_baseline=estimator_named(config.algorithm.adv_estimator).baseline,
        ),
        publisher=Publisher(
            models.actor,
            pool,
            files=NodeFiles(source="here"),
            engine_nodes=["here"] * len(parts.engines),
            dtype="float32",
            size_hint_bytes=256,
        ),
        critic=critic_settings(config),
        controller=KLController(config.algorithm.kl_ctrl),
        open_telemetry=telemetry,
        config_fingerprint="fake",
        monitor=monitor,
        decode=lambda tokens: "".join(map(chr, tokens)),
        measures=Measures(
            models,
            pool,
            throughput=Throughput(generate_devices=1, update_devices=1, update_operations=None),
            epochs=config.actor_rollout_ref.actor.ppo_epochs,
            profile_steps=config.trainer.profile_steps or (),
            profile_folder=out / "profile",
        ),
    )


async def train_and_close(run: Run) -> None:
    try:
        await train(run)
    finally:
        await run.close()


def records(path: Path) -> list[dict[str, Any]]:
    """The lines of a JSON lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


_CLOCKS = ("time/", "perf/", "memory/")


def without_clocks(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Metrics without those that measure the computer."""
    return [
        {
            k: v
            for k, v in line.items()
            if not k.startswith(_CLOCKS) and not k.endswith(("latency_s", "unix_s"))
        }
        for line in lines
    ]
