"""The contract of rollout engines: one scenario for every engine, read by one set of tests.

A test file imports all of this and brings a fixture `name`: tests/contracts/test_rollout_engines.py
the engines that hold no model, tests/slow/contracts/test_rollout_engines.py the others. The engines
follow a script of calls (`scenario`); vLLM does it in a process of its own. SGLang's side is a stand-in for its server that speaks the documented protocol over real HTTP: what it
samples is made up, so it has no part in the comparison of log-probabilities. Tolerance of that
comparison, float32 throughout: 1e-4 at every token.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from rmrl.backends import TRAIN_ENGINES
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.config.schema import ActorConfig, FSDPConfig, ModelConfig, OptimConfig
from rmrl.config.schema.rollout import RolloutConfig
from rmrl.errors import DataError, InfrastructureError, RmrlError
from rmrl.inference.rollout import build_engine
from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.inference.weights.file import write_weights
from rmrl.types import Generation, Ragged, Sampling, TrainBatch
from tests.engine_models import write_llama
from tests.engine_process import run_in_engine_process
from tests.inference.rollout.sglang_server import Protocol
from tests.rewards.remote.server import serving
from tests.support import fakes

FAST = (fakes.ROLLOUT, "sglang")
TRAINED = ("hf", "vllm")
"""Engines that hold a model."""
PROMPTS = [[(7 * i + 13 * n) % 200 + 4 for i in range(n)] for n in (5, 1, 40)]
LONGEST, TEMPERATURE = 64, 0.7
WARM = Sampling(max_tokens=8, temperature=TEMPERATURE, n=3, seed=3, ignore_eos=True)
GREEDY = Sampling(max_tokens=8, temperature=0.0, n=2, ignore_eos=True)
SOME = [(0, 1), (2, 0), (2, 2)]
"""Prompt and sample of some that WARM draws."""
ENDING = Sampling(max_tokens=8, temperature=1.0, n=3, seed=5)
LONG = Sampling(max_tokens=20, temperature=1.0, n=4, seed=9, ignore_eos=True)

Found = dict[str, Any]


def settings(name: str, path: str, kwargs: dict[str, Any]) -> RolloutEngineSettings:
    config = RolloutConfig(
        name=name,
        dtype="float32",
        kv_cache_bytes=64 * 2**20,
        max_num_seqs=8,
        max_num_batched_tokens=1024,
    )
    decided = {
        "path": path,
        "tokenizer": None,
        "device": "cpu",
        "threads": 1,
        "max_model_len": LONGEST,
        "trust_remote_code": False,
    }
    return RolloutEngineSettings.of(config, **decided, kwargs=kwargs)


def scenario(name: str, path: str, files: Sequence[str]) -> Found:
    """All that is found out about an engine. `files`: two sets of weights to publish."""
    with contextlib.ExitStack() as stack:
        kwargs: dict[str, Any] = {"lengths": [20, 20]} if name == fakes.ROLLOUT else {}
        if name == "sglang":
            kwargs = {"base_url": stack.enter_context(serving(Protocol().answer)).url}
        return asyncio.run(_scenario(build_engine(name, settings(name, path, kwargs)), files))


async def _scenario(engine: Any, files: Sequence[str]) -> Found:
    found: Found = {"errors": {}}
    await _note(found, "before start", _all(engine, WARM))
    await engine.start()
    found["awake bytes"] = await engine.resident_bytes()
    for way, sampling in (
        ("warm", WARM),
        ("greedy", GREEDY),
        ("ending", ENDING),
        ("warm again", WARM),
    ):
        found[way] = await _all(engine, sampling)
    found["some alone"] = await _all(engine, WARM, only=SOME)
    found["other seed"] = await _all(engine, dataclasses.replace(WARM, seed=1000))
    found["at once"] = await asyncio.gather(_all(engine, WARM), _all(engine, LONG, PROMPTS[:1]))
    await _note(found, "empty prompt", _all(engine, WARM, [[5], []]))
    await _note(found, "long prompt", _all(engine, WARM, [[5] * LONGEST]))
    stream = engine.generate(PROMPTS, LONG)
    await anext(stream)
    await stream.aclose()
    found["after an abandoned call"] = await _all(engine, WARM)
    await _weights(engine, found, files)
    await _note(found, "no weights", engine.load_weights(files[0] + ".nowhere", version=9))
    await engine.shutdown()
    await _note(found, "after shutdown", _all(engine, WARM))
    return found


async def _weights(engine: Any, found: Found, files: Sequence[str]) -> None:
    """New weights awake and asleep; sleep at both levels, woken whole and in parts."""
    await engine.load_weights(files[0], version=1)
    found["version 1"] = await _all(engine, WARM)
    for level in (1, 2):
        await engine.sleep(level)
        found[f"asleep {level} bytes"] = await engine.resident_bytes()
        await _note(found, f"asleep {level}", _all(engine, WARM))
        await engine.wake()
        found[f"woken {level}"] = await _all(engine, WARM)
    await engine.sleep(2)
    await engine.load_weights(files[1], version=2)
    await _note(found, "weights alone", _all(engine, WARM))
    await engine.wake(["kv_cache"])
    found["version 2"] = await _all(engine, WARM)


async def _note(found: Found, name: str, work: Any) -> None:
    try:
        await work
    except Exception as error:  # whatever it is, a test looks at it
        found["errors"][name] = (type(error).__name__, isinstance(error, RmrlError), str(error))


async def _all(
    engine: Any,
    sampling: Sampling,
    prompts: list[list[int]] = PROMPTS,
    only: list[tuple[int, int]] | None = None,
) -> list[Generation]:
    more = () if only is None else (only,)
    generations = [g async for g in engine.generate(prompts, sampling, *more)]
    return sorted(generations, key=lambda g: (g.prompt_index, g.sample_index))


# --- the policy that trains


@dataclasses.dataclass
class Trained:
    """A checkpoint, what two updates make of it, and the training engine's opinion of samples under
    each."""

    path: str
    files: list[str]
    engines: list[Any]
    """Version 0, 1, 2."""

    def logprobs(self, generations: Sequence[Generation], version: int) -> list[np.ndarray]:
        """Of each sample's tokens."""
        rows = [PROMPTS[g.prompt_index] + list(g.token_ids) for g in generations]
        mask = Ragged.of([np.ones(len(g.token_ids)) for g in generations], np.float32)
        return (
            self.engines[version]
            .logprobs(TrainBatch(tokens=Ragged.of(rows, np.int64), response_mask=mask))
            .rows()
        )


def _batch(seed: int) -> TrainBatch:
    draw = np.random.default_rng(seed)
    ones = Ragged.of([np.ones(6)] * 4, np.float32)
    return TrainBatch(
        tokens=Ragged.of([draw.integers(4, 200, 12) for _ in range(4)], np.int64),
        response_mask=ones,
        advantages=ones,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    folder = tmp_path_factory.mktemp("policy")
    path, made = str(write_llama(folder / "lm")), Trained("", [], [])
    for version in range(3):
        shown = TrainSettings(
            model=ModelConfig(path=path, enable_gradient_checkpointing=False),
            actor=ActorConfig(optim=OptimConfig(lr=3e-3), fsdp_config=FSDPConfig(param_dtype=None)),
            temperature=TEMPERATURE,
            total_steps=10,
            max_response_length=20,
        )
        engine: Any = TRAIN_ENGINES["fsdp2"](shown, ProcessSettings())
        for step in range(version):
            engine.update([_batch(step)])
        if version:
            made.files.append(str(folder / f"{version}.safetensors"))
            engine.export_weights(made.files[-1], "float32")
        made.engines.append(engine)
    made.path = path
    yield made
    made.engines[0].close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Weights for engines that hold no model."""
    folder = tmp_path_factory.mktemp("weights")
    for value in (1.0, 2.0):
        write_weights(
            folder / f"{value}", [("w", torch.float32, [2])], [("w", torch.full((2,), value))]
        )
    return [str(folder / f"{value}") for value in (1.0, 2.0)]


@pytest.fixture(scope="module")
def found(files: list[str], request: pytest.FixtureRequest) -> Callable[[str], Found]:
    """The scenario of each engine, played once."""

    def of(name: str) -> Found:
        if name not in TRAINED:
            return scenario(name, "nowhere", files)
        trained = request.getfixturevalue("trained")
        played = run_in_engine_process if name == "vllm" else _called
        return played(scenario, name, trained.path, trained.files)

    return cache(of)


def _called(function: Callable[..., Found], *args: Any) -> Found:
    return function(*args)


# --- the contract


def test_every_sample_comes_once_and_whole(name: str, found: Any) -> None:
    for way, sampling in (("warm", WARM), ("greedy", GREEDY), ("after an abandoned call", WARM)):
        generations = found(name)[way]
        assert [(g.prompt_index, g.sample_index) for g in generations] == [
            (p, s) for p in range(len(PROMPTS)) for s in range(sampling.n)
        ]
        for g in generations:
            assert (len(g.token_ids), len(g.logprobs), g.finish_reason, g.policy_version) == (
                8,
                8,
                "length",
                0,
            )
            assert all(math.isfinite(value) and value <= 0 for value in g.logprobs)
            assert isinstance(g.text, str)


def test_the_end_token_is_part_of_a_sample(name: str, found: Any) -> None:
    for g in found(name)["ending"]:
        assert len(g.logprobs) == len(g.token_ids) <= 8
        assert g.finish_reason == (
            "stop" if g.token_ids[-1] == 2 or len(g.token_ids) < 8 else "length"
        )


def test_samples_of_a_group_differ_and_seeds_repeat(name: str, found: Any) -> None:
    tokens = {
        way: [tuple(g.token_ids) for g in found(name)[way]]
        for way in ("warm", "warm again", "after an abandoned call", "other seed")
    }
    assert tokens["warm again"] == tokens["after an abandoned call"] == tokens["warm"]
    assert tokens["other seed"] != tokens["warm"]
    assert all(len(set(tokens["warm"][start : start + 3])) == 3 for start in range(0, 9, 3))


def test_some_samples_alone_are_those_of_the_whole_call(name: str, found: Any) -> None:
    alone = found(name)["some alone"]
    assert [(g.prompt_index, g.sample_index) for g in alone] == SOME
    whole = {(g.prompt_index, g.sample_index): g.token_ids.tolist() for g in found(name)["warm"]}
    if name != "hf":
        # It seeds a batch, not a sample.
        assert [g.token_ids.tolist() for g in alone] == [whole[place] for place in SOME]


def test_greedy_samples_are_equal(name: str, found: Any) -> None:
    generations = found(name)["greedy"]
    assert [tuple(g.token_ids) for g in generations[::2]] == [
        tuple(g.token_ids) for g in generations[1::2]
    ]


def test_calls_may_overlap(name: str, found: Any) -> None:
    warm, long = found(name)["at once"]
    assert [tuple(g.token_ids) for g in warm] == [tuple(g.token_ids) for g in found(name)["warm"]]
    assert [(g.sample_index, len(g.token_ids)) for g in long] == [(s, 20) for s in range(4)]


def test_published_weights_sample_and_are_named(name: str, found: Any) -> None:
    ways = {"version 1": 1, "woken 1": 1, "woken 2": 1, "version 2": 2}
    assert {way: {g.policy_version for g in found(name)[way]} for way in ways} == {
        way: {version} for way, version in ways.items()
    }
    tokens = {way: [tuple(g.token_ids) for g in found(name)[way]] for way in ("warm", *ways)}
    assert tokens["woken 1"] == tokens["woken 2"] == tokens["version 1"]
    assert tokens["warm"] != tokens["version 1"] != tokens["version 2"] != tokens["warm"]


def test_sleep_never_takes_more_memory(name: str, found: Any) -> None:
    awake = found(name)["awake bytes"]
    slack = (
        64 * 2**20 if name == "hf" else 0
    )  # on CPU it has nowhere to move its weights, and its process goes on growing
    assert isinstance(awake, int)
    assert 0 <= found(name)["asleep 2 bytes"] <= awake + slack
    if name in (fakes.ROLLOUT, "vllm"):
        assert found(name)["asleep 2 bytes"] < awake


@pytest.mark.parametrize(
    ("when", "kind", "message"),
    [
        ("before start", InfrastructureError, "start"),
        ("asleep 1", InfrastructureError, "asleep"),
        ("asleep 2", InfrastructureError, "asleep"),
        ("weights alone", InfrastructureError, "asleep"),
        ("after shutdown", InfrastructureError, "start"),
        ("empty prompt", DataError, "prompt 1 of the call has 0 tokens"),
        ("long prompt", DataError, "has 64 tokens and the rollout engine takes 1 to 63"),
    ],
)
def test_refusals_say_what_to_do(
    name: str, when: str, kind: type[RmrlError], message: str, found: Any
) -> None:
    seen, ours, said = found(name)["errors"][when]
    assert (seen, ours) == (kind.__name__, True)
    assert message in said


def test_a_file_that_is_not_there(name: str, found: Any) -> None:
    if name == fakes.ROLLOUT:  # it reads no files
        assert "no weights" not in found(name)["errors"]
        return
    _, ours, said = found(name)["errors"]["no weights"]
    assert ours
    assert "nowhere" in said
