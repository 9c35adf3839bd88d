"""Real vLLM against transformers; one process runs the scenario, the tests read what it found."""

import asyncio
import dataclasses
import os
import threading
from typing import Any

import pytest
import torch

from rmrl.config.schema.rollout import RolloutConfig
from rmrl.errors import DataError, EngineLoadError, InfrastructureError, RmrlError, StallError
from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.inference.vllm.rollout import VLLMRollout
from rmrl.inference.weights.file import write_weights
from rmrl.types import Generation, Sampling
from tests.engine_models import write_llama
from tests.engine_process import run_in_engine_process
from tests.patience import PATIENCE_S, expires

# The third is longer than one block of the prefix cache (128 tokens on CPU): only there would a
# stale cache show.
PROMPTS = [[(7 * i + 13 * n) % 1000 + 4 for i in range(n)] for n in (5, 9, 300, 33)]
GREEDY = Sampling(max_tokens=16, temperature=0.0, ignore_eos=True)
WARM = Sampling(max_tokens=16, temperature=0.7, n=3, ignore_eos=True)
FILTERED = Sampling(
    max_tokens=16, temperature=0.7, top_p=0.8, top_k=20, n=2, seed=3, ignore_eos=True
)
FIRST_TOKENS = Sampling(max_tokens=1, temperature=1.0, n=24, seed=5, ignore_eos=True)
LONG = Sampling(max_tokens=150, n=4, ignore_eos=True)

Found = dict[str, list[Generation]]


def settings(path: str, **changed: Any) -> RolloutEngineSettings:
    config = RolloutConfig(
        dtype="float32", kv_cache_bytes=64 * 2**20, max_num_seqs=32, max_num_batched_tokens=1024
    )
    decided = {
        "path": path,
        "tokenizer": None,
        "device": "cpu",
        "threads": 1,
        "max_model_len": 512,
        "trust_remote_code": False,
    }
    return RolloutEngineSettings.of(config, **(decided | changed))


def scenario(lm: str, first: str, second: str) -> dict[str, Any]:
    return asyncio.run(_scenario(lm, first, second))


async def _scenario(lm: str, first: str, second: str) -> dict[str, Any]:
    engine = VLLMRollout(settings(lm))
    found: dict[str, Any] = {"errors": {}, "freed": {}}
    await _note(found, "before start", engine.sleep())
    await engine.start()
    found["base"] = await _everything(engine)
    found["seeded again"] = await _all(engine, FILTERED)
    await engine.load_weights(first, version=1)
    found["first"] = await _everything(engine)
    await _sleeps(engine, found, first, second)
    await _in_flight(engine, found, first)
    await _refusals(engine, found, lm)
    for wide in (False, True):
        half = VLLMRollout(settings(lm, dtype="bfloat16", float32_head=wide))
        await half.start()
        found[f"float32_head={wide}"] = await _all(half, FIRST_TOKENS, PROMPTS[:1])
        await half.shutdown()
    return found


async def _sleeps(engine: VLLMRollout, found: dict[str, Any], first: str, second: str) -> None:
    for level in (1, 2):
        awake = await engine.resident_bytes()
        await engine.sleep(level)
        await _note(found, f"asleep {level}", _all(engine, GREEDY))
        found["freed"][level] = awake - await engine.resident_bytes()
        await engine.wake()
        found[f"woken {level}"] = await _everything(engine)
    await engine.sleep(2)
    await engine.load_weights(second, version=2)
    await engine.wake()
    found["second"] = await _everything(engine)
    await engine.sleep(2)
    await engine.wake(["weights"])
    await _note(found, "half awake", _all(engine, GREEDY))
    await engine.load_weights(first, version=3)
    await engine.wake(["kv_cache"])
    found["first again"] = await _everything(engine)


async def _in_flight(engine: VLLMRollout, found: dict[str, Any], first: str) -> None:
    task = asyncio.create_task(_all(engine, LONG))
    while not engine._engine.has_unfinished_requests():
        await asyncio.sleep(0)
    await _note(found, "sleep in flight", engine.sleep())
    await engine.load_weights(first, version=4)
    found["greedy in flight"] = await _all(engine, GREEDY)
    found["turns"] = turns_of_the_loop(engine)
    found["in flight"] = await task
    del engine._engine.step
    stream = engine.generate(PROMPTS, LONG)
    await anext(stream)
    await stream.aclose()
    found["left behind"] = engine._engine.has_unfinished_requests()
    found["after abort"] = await _everything(engine)


def turns_of_the_loop(engine: VLLMRollout) -> list[bool]:
    """Whether the event loop turns during each engine step from now on."""
    loop, step = asyncio.get_running_loop(), engine._engine.step
    turns: list[bool] = []

    def step_once_the_loop_has_turned() -> Any:
        turn = threading.Event()
        loop.call_soon_threadsafe(turn.set)
        # A blocked loop is waited for once.
        turns.append(all(turns) and turn.wait(PATIENCE_S))
        return step()

    engine._engine.step = step_once_the_loop_has_turned
    return turns


async def _refusals(engine: VLLMRollout, results: dict[str, Any], lm: str) -> None:
    await _note(results, "too long", _all(engine, GREEDY, [[1] * 512]))
    impatient = VLLMRollout(settings(lm, timeout_s=expires(0.05)))
    await impatient.start()
    impatient._engine.step = list  # no output, at any step
    await _note(results, "impatient", _all(impatient, LONG))
    results["impatient left behind"] = impatient._engine.has_unfinished_requests()
    task = asyncio.create_task(_all(engine, LONG))
    # The engine thread is handing the first of several samples to the engine.
    add, shutdown_begins, may_end = engine._engine.add_request, threading.Event(), threading.Event()

    def add_once_the_shutdown_has_begun(*args: Any) -> None:
        shutdown_begins.set()
        assert may_end.wait(PATIENCE_S)
        add(*args)

    engine._engine.add_request = add_once_the_shutdown_has_begun
    while not shutdown_begins.is_set():
        await asyncio.sleep(0)
    shutdown = asyncio.create_task(engine.shutdown())
    while engine._pending:
        await asyncio.sleep(0)
    may_end.set()
    await shutdown
    await _note(results, "shut down", task)
    await _note(results, "no checkpoint", VLLMRollout(settings(lm + "-nowhere")).start())


async def _note(found: dict[str, Any], name: str, work: Any) -> None:
    try:
        await work
    except RmrlError as error:
        found["errors"][name] = error


async def _all(
    engine: VLLMRollout, sampling: Sampling, prompts: list[list[int]] = PROMPTS
) -> list[Generation]:
    generations = [g async for g in engine.generate(prompts, sampling)]
    return sorted(generations, key=lambda g: (g.prompt_index, g.sample_index))


async def _everything(engine: VLLMRollout) -> Found:
    return {
        "greedy": await _all(engine, GREEDY),
        "warm": await _all(engine, WARM),
        "filtered": await _all(engine, FILTERED),
    }


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The base policy's folder, and two published files with the models that made them."""
    from transformers import AutoModelForCausalLM

    root = tmp_path_factory.mktemp("policy")
    folder = write_llama(root / "lm")
    made: dict[str, Any] = {
        "folder": folder,
        "base": AutoModelForCausalLM.from_pretrained(folder).eval(),
    }
    for seed, name in enumerate(("first", "second"), start=1):
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.03)
        named = dict(model.named_parameters())
        assert "lm_head.weight" not in named  # tied: the trap this guards against
        made[f"{name} file"] = root / f"{name}.safetensors"
        write_weights(
            made[f"{name} file"], [(n, p.dtype, p.shape) for n, p in named.items()], named.items()
        )
        made[name] = model
    return made


@pytest.fixture(scope="module")
def found(models: dict[str, Any]) -> dict[str, Any]:
    return run_in_engine_process(
        scenario, *(os.fspath(models[name]) for name in ("folder", "first file", "second file"))
    )


def greedy_tokens(model: Any, prompt: list[int]) -> tuple[int, ...]:
    ids = torch.tensor([prompt])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=GREEDY.max_tokens,
        eos_token_id=None,
        pad_token_id=0,
    )
    return tuple(out[0, len(prompt) :].tolist())


@torch.no_grad()
def logprobs(
    model: Any, prompt: list[int], tokens: tuple[int, ...], temperature: float
) -> list[float]:
    ids = torch.tensor([prompt + list(tokens)])
    logits = model(ids).logits[0, len(prompt) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0].tolist()


@pytest.mark.parametrize(
    ("stage", "model", "version"),
    [
        ("base", "base", 0), ("first", "first", 1), ("woken 1", "first", 1), ("woken 2", "first", 1), ("second", "second", 2),
        ("first again", "first", 3), ("after abort", "first", 4),
    ],
)  # fmt: skip
def test_samples_are_those_of_the_weights(
    models: dict[str, Any], found: dict[str, Any], stage: str, model: str, version: int
) -> None:
    """Greedy tokens equal transformers'; logprobs equal log softmax(logits / T), with and without
    top-p and top-k."""
    for way, sampling, temperature in (
        ("greedy", GREEDY, 1.0),
        ("warm", WARM, 0.7),
        ("filtered", FILTERED, 0.7),
    ):
        generations = found[stage][way]
        assert [(g.prompt_index, g.sample_index) for g in generations] == [
            (p, s) for p in range(4) for s in range(sampling.n)
        ]
        for g in generations:
            expected = logprobs(models[model], PROMPTS[g.prompt_index], g.token_ids, temperature)
            assert g.logprobs == pytest.approx(expected, abs=1e-4)
            assert (g.finish_reason, g.policy_version, len(g.token_ids)) == ("length", version, 16)
    for g in found[stage]["greedy"]:
        assert tuple(g.token_ids) == greedy_tokens(models[model], PROMPTS[g.prompt_index])


def test_weights_really_differ(models: dict[str, Any]) -> None:
    """Else the test above could not tell one from another."""
    tokens = tuple(range(10, 26))
    rows = [
        torch.tensor(logprobs(models[name], PROMPTS[2], tokens, 0.7))
        for name in ("base", "first", "second")
    ]
    assert min((rows[0] - rows[1]).abs().max(), (rows[1] - rows[2]).abs().max()) > 0.1


def test_samples_of_a_group_differ_and_seeds_repeat(found: dict[str, Any]) -> None:
    assert len({tuple(g.token_ids) for g in found["base"]["warm"][:3]}) == 3
    assert len({tuple(g.token_ids) for g in found["base"]["filtered"][:2]}) == 2
    assert [tuple(g.token_ids) for g in found["seeded again"]] == [
        tuple(g.token_ids) for g in found["base"]["filtered"]
    ]


def test_sleep_frees_memory(found: dict[str, Any]) -> None:
    assert found["freed"][1] > 50 * 2**20  # the KV cache alone is 64 MiB
    assert found["freed"][2] > 0  # after waking only what was touched since is there to be freed


def test_weights_loaded_in_flight(models: dict[str, Any], found: dict[str, Any]) -> None:
    assert len(found["in flight"]) == 16
    assert {len(g.token_ids) for g in found["in flight"]} == {150}
    assert {g.policy_version for g in found["in flight"]} == {3}  # the version they began with
    for g in found["greedy in flight"]:
        assert tuple(g.token_ids) == greedy_tokens(models["first"], PROMPTS[g.prompt_index])


def test_the_event_loop_stays_free(found: dict[str, Any]) -> None:
    """It turns during every step of the engine."""
    assert len(found["turns"]) > 20
    assert all(found["turns"])


def test_an_abandoned_call_is_aborted(found: dict[str, Any]) -> None:
    assert found["left behind"] is False
    assert found["impatient left behind"] is False


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("before start", InfrastructureError, "not started"),
        ("asleep 1", InfrastructureError, "is asleep"),
        ("asleep 2", InfrastructureError, "is asleep"),
        ("half awake", InfrastructureError, "is asleep"),
        ("sleep in flight", InfrastructureError, "16 samples under way"),
        ("too long", DataError, "has 512 tokens"),
        ("impatient", StallError, f"timeout_s={expires(0.05)}"),
        ("shut down", InfrastructureError, "shut down"),
        ("no checkpoint", EngineLoadError, "nowhere"),
    ],
)
def test_errors(found: dict[str, Any], name: str, kind: type[RmrlError], message: str) -> None:
    assert type(found["errors"][name]) is kind
    assert message in str(found["errors"][name])


SEEDED = Sampling(max_tokens=8, n=2, seed=5, ignore_eos=True)


async def _in_parts(lm: str) -> dict[int, list[Generation]]:
    found = {}
    for budget in (1024, 64):  # the prompt of 300 tokens is read at once, or in five parts
        engine = VLLMRollout(dataclasses.replace(settings(lm), max_num_batched_tokens=budget))
        await engine.start()
        found[budget] = await _all(engine, SEEDED)
        await engine.sleep(2)
    return found


def in_parts(lm: str) -> dict[int, list[Generation]]:
    return asyncio.run(_in_parts(lm))


def test_a_seeded_prompt_may_be_read_in_parts(models: dict[str, Any]) -> None:
    """A token that is sampled between two parts is thrown away, and its draw with it."""
    found = run_in_engine_process(in_parts, os.fspath(models["folder"]))
    assert [tuple(g.token_ids) for g in _ordered(found[64])] == [
        tuple(g.token_ids) for g in _ordered(found[1024])
    ]


def _ordered(generations: list[Generation]) -> list[Generation]:
    return sorted(generations, key=lambda g: (g.prompt_index, g.sample_index))


@pytest.mark.parametrize("wide", [False, True])
def test_logits_are_rounded_unless_the_head_is_in_float32(
    found: dict[str, Any], wide: bool
) -> None:
    """First tokens behind one prompt: their log-probabilities differ as their logits do. bfloat16
    holds logits above 2^-6 in multiples of 2^-14."""
    samples: list[Generation] = found[f"float32_head={wide}"]
    logprobs = {int(each.token_ids[0]): float(each.logprobs[0]) for each in samples}
    first, *others = logprobs.values()
    assert len(others) > 10
    steps = [(each - first) * 2**14 for each in others]
    share = sum(abs(step - round(step)) < 0.1 for step in steps) / len(steps)
    assert (share < 0.6) is wide
