"""FSDPEngine in one and two gloo processes, against plain torch and against itself cut
differently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM

from rmrl.backends.base import ProcessSettings
from rmrl.backends.fsdp import fsdp2
from rmrl.backends.fsdp.engine import FSDPEngine
from rmrl.backends.worker import TrainWorker
from rmrl.config.schema import FSDPConfig
from rmrl.errors import CheckpointError, ConfigError
from rmrl.types import Metrics, Ragged, TrainBatch
from tests.backends.policies import (
    ONE_PROCESS,
    TEMPERATURE,
    engine,
    make_batch,
    make_settings,
    run_group,
    share,
)

pytestmark = pytest.mark.usefixtures("_leaves_group")

UPDATES = 6
COMPARED = (
    "policy/loss",
    "policy/grad_norm",
    "policy/entropy",
    "policy/kl",
    "policy/ref_kl",
    "policy/clip_fraction",
    "policy/tokens",
)


def train(trained: FSDPEngine, process: ProcessSettings, steps: range) -> list[Metrics]:
    """One update per step, each on a batch of its own."""
    return [trained.update([share(make_batch(7, seed=step), process)]) for step in steps]


def assert_same_curve(got: list[Metrics], expected: list[Metrics], rel: float = 1e-5) -> None:
    for step, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        for name in COMPARED:
            assert ours[name] == pytest.approx(theirs[name], rel=rel, abs=1e-7), (
                f"{name} of update {step}"
            )


@pytest.fixture(scope="module")
def one_process_run(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The curve everything else must reproduce: one process, one micro-batch; saved half-way."""
    saved = tmp_path_factory.mktemp("one") / "half"
    trained = engine(make_settings(policy))
    curve = train(trained, ONE_PROCESS, range(3))
    trained.save(str(saved))
    curve += train(trained, ONE_PROCESS, range(3, UPDATES))
    logprobs = trained.logprobs(make_batch(5, seed=99)).values
    trained.close()
    return {"curve": curve, "saved": saved, "logprobs": logprobs}


# --- one process


def test_logprobs_equal_transformers(policy: Path):
    batch = make_batch(6, seed=3)
    trained = engine(make_settings(policy, ppo_max_token_len_per_gpu=40))
    got, energies = trained.logprobs_and_energies(batch)
    assert np.array_equal(got.values, trained.logprobs(batch).values)
    assert got.lengths.tolist() == energies.lengths.tolist() == batch.response_mask.lengths.tolist()
    model = AutoModelForCausalLM.from_pretrained(policy)
    rows = zip(batch.tokens.rows(), got.lengths, got.rows(), energies.rows(), strict=True)
    for row, count, values, of_row in rows:
        ids = torch.from_numpy(row)
        with torch.no_grad():
            log_p = (model(ids[None]).logits[0] / TEMPERATURE).log_softmax(-1)
        places = range(len(ids) - count, len(ids))
        expected = [log_p[i - 1, ids[i]].item() for i in places]
        assert values == pytest.approx(expected, abs=1e-5)
        squares = log_p.exp().square().sum(-1)
        expected = [(1 - 2 * log_p[i - 1, ids[i]].exp() + squares[i - 1]).item() for i in places]
        assert of_row == pytest.approx(expected, abs=1e-5)


def test_rows_without_a_response_have_empty_logprobs(policy: Path):
    batch = TrainBatch(
        tokens=Ragged.of([[5, 6], [5, 6, 7]], np.int64),
        response_mask=Ragged.of([[], [1.0]], np.float32),
    )
    assert engine(make_settings(policy)).logprobs(batch).lengths.tolist() == [0, 1]


def test_one_update_equals_plain_torch(policy: Path):
    """The clipped loss with KL and entropy terms, the mean over counted tokens, clipping and AdamW,
    written out by hand."""
    batch = make_batch(5, seed=11)
    settings = make_settings(policy, grad_clip=0.05)
    trained = engine(settings)
    metrics = trained.update([batch])

    model = AutoModelForCausalLM.from_pretrained(policy)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
    )  # warm-up: half of 2e-3
    total, count = torch.zeros(()), 0.0
    streams = (
        batch.tokens,
        batch.response_mask,
        batch.old_logprobs,
        batch.ref_logprobs,
        batch.advantages,
    )
    for row, mask, old, ref, advantages in zip(
        *(map(torch.from_numpy, s.rows()) for s in streams), strict=True
    ):
        log_p = (model(row[None]).logits[0, -len(mask) - 1 : -1] / TEMPERATURE).log_softmax(-1)
        new = log_p.gather(1, row[-len(mask) :, None])[:, 0]
        ratio = (new - old).exp()
        loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))
        loss = torch.where(advantages < 0, torch.minimum(loss, -3.0 * advantages), loss)
        kl = (ref - new).exp() - 1 - (ref - new)
        entropy = -(log_p.exp() * log_p).sum(-1)
        total = total + ((loss + 0.1 * kl - 0.01 * entropy) * mask).sum()
        count += mask.sum().item()
    (total / count).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    optimizer.step()

    assert norm > 0.05  # else the clip would not be tested
    assert metrics["policy/loss"] == pytest.approx((total / count).item(), rel=1e-5)
    assert metrics["policy/grad_norm"] == pytest.approx(norm.item(), rel=1e-5)
    assert metrics["policy/lr"] == pytest.approx(1e-3)
    assert metrics["policy/tokens"] == count
    expected = dict(model.named_parameters())
    for name, tensor in trained.weights():
        torch.testing.assert_close(tensor, expected.pop(name).detach(), atol=2e-6, rtol=1e-5)
    assert not expected


@pytest.mark.parametrize(
    "mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
)
def test_micro_batches_change_nothing(policy: Path, mode: str):
    whole = engine(make_settings(policy, loss_agg_mode=mode))
    cut = engine(
        make_settings(
            policy, loss_agg_mode=mode, use_dynamic_bsz=False, ppo_micro_batch_size_per_gpu=2
        )
    )
    assert_same_curve(train(cut, ONE_PROCESS, range(3)), train(whole, ONE_PROCESS, range(3)))


def test_same_seeds_same_bits(policy: Path, one_process_run: dict[str, Any]):
    assert (
        train(engine(make_settings(policy)), ONE_PROCESS, range(UPDATES))
        == one_process_run["curve"]
    )


def test_resumed_run_is_bit_equal(policy: Path, one_process_run: dict[str, Any]):
    resumed = engine(make_settings(policy))
    resumed.load(str(one_process_run["saved"]))
    assert train(resumed, ONE_PROCESS, range(3, UPDATES)) == one_process_run["curve"][3:]
    assert np.array_equal(
        resumed.logprobs(make_batch(5, seed=99)).values, one_process_run["logprobs"]
    )


def test_checkpoint_errors_say_what_is_wrong(policy: Path, tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"no complete checkpoint \(it has no state\.json\)"):
        engine(make_settings(policy)).load(str(tmp_path))


def test_what_a_resumed_run_needs_is_saved_whatever_is_asked_for(policy: Path, tmp_path: Path):
    settings = make_settings(policy)
    settings.actor.checkpoint.save_contents = ["hf_model"]
    first, second = engine(settings), engine(settings)
    train(first, ONE_PROCESS, range(1))
    first.save(str(tmp_path / "bare"))
    second.load(str(tmp_path / "bare"))
    assert train(second, ONE_PROCESS, range(1, 2)) == train(first, ONE_PROCESS, range(1, 2))


def test_weights_export_and_hf_folder_agree(policy: Path, tmp_path: Path):
    trained = engine(make_settings(policy))
    train(trained, ONE_PROCESS, range(1))
    weights = dict(trained.weights())
    assert [(n, t.dtype, tuple(t.shape)) for n, t in weights.items()] == trained.manifest()
    trained.save_hf(str(tmp_path / "hf"))
    reloaded = dict(AutoModelForCausalLM.from_pretrained(tmp_path / "hf").named_parameters())
    assert reloaded.keys() == weights.keys()
    assert all(torch.equal(reloaded[name], weights[name]) for name in weights)
    assert (tmp_path / "hf" / "tokenizer_config.json").is_file()
    file = tmp_path / "weights.safetensors"
    assert trained.export_weights(str(file), "bfloat16") == file.stat().st_size
    assert all(torch.equal(load_file(file)[name], weights[name].bfloat16()) for name in weights)


def test_a_gradient_that_is_not_finite_skips_the_step(policy: Path):
    trained = engine(make_settings(policy))
    before = dict(trained.weights())
    batch = make_batch(3, seed=0)
    batch.advantages.values[0] = np.inf
    metrics = trained.update([batch])
    assert metrics["policy/skipped_updates"] == 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in trained.weights())
    assert trained.update([make_batch(3, seed=1)])["policy/skipped_updates"] == 0


def test_reference_shares_the_process_and_stays(policy: Path):
    trained, reference = engine(make_settings(policy)), engine(make_settings(policy, role="ref"))
    batch = make_batch(4, seed=5)
    before = reference.logprobs(batch).values
    np.testing.assert_allclose(trained.logprobs(batch).values, before, atol=1e-6)
    train(trained, ONE_PROCESS, range(2))
    assert np.array_equal(reference.logprobs(batch).values, before)
    assert (
        np.abs(trained.logprobs(batch).values - before).max() > 1e-3
    )  # and the policy did not keep stale weights


def test_logprobs_follow_the_weights(policy: Path):
    """A forward pass before the update must not leave gathered weights behind for the one after
    it."""
    batch, plain = make_batch(4, seed=5), engine(make_settings(policy))
    interrupted = engine(make_settings(policy))
    for step in range(2):
        interrupted.logprobs(batch)
        train(interrupted, ONE_PROCESS, range(step, step + 1))
    train(plain, ONE_PROCESS, range(2))
    assert np.array_equal(interrupted.logprobs(batch).values, plain.logprobs(batch).values)


def test_nothing_stays_gathered_after_logprobs(policy: Path):
    trained = engine(make_settings(policy, fsdp=FSDPConfig(param_dtype="bfloat16")))
    trained.logprobs(make_batch(2, seed=0))
    assert all(isinstance(parameter, DTensor) for parameter in trained._part.model.parameters())


@pytest.mark.parametrize(
    ("fsdp", "sharded"),
    [
        (FSDPConfig(param_dtype=None), False),
        (FSDPConfig(param_dtype="float32"), False),
        (FSDPConfig(model_dtype="bfloat16", param_dtype="bfloat16"), False),
        (FSDPConfig(param_dtype="bfloat16"), True),  # gathering is the cast
    ],
)
def test_one_process_that_casts_nothing_keeps_the_plain_model(
    policy: Path, fsdp: FSDPConfig, sharded: bool
):
    model = engine(make_settings(policy, fsdp=fsdp))._part.model
    assert isinstance(model, FSDPModule) == sharded


def test_a_plain_model_trains_as_a_sharded_one(policy: Path, monkeypatch: pytest.MonkeyPatch):
    """To the last bit: gathering in one process copies."""
    batch = make_batch(4, seed=5)
    plain = engine(make_settings(policy))
    monkeypatch.setattr(fsdp2, "_casts", lambda *_: True)
    sharded = engine(make_settings(policy))
    assert isinstance(sharded._part.model, FSDPModule)
    for trained in (plain, sharded):
        train(trained, ONE_PROCESS, range(2))
    assert np.array_equal(plain.logprobs(batch).values, sharded.logprobs(batch).values)


@pytest.mark.parametrize(
    "fsdp",
    [
        FSDPConfig(),
        FSDPConfig(model_dtype="bfloat16"),
        FSDPConfig(model_dtype="bfloat16", param_dtype=None),
        FSDPConfig(reduce_dtype="bfloat16", reshard_after_forward=False),
    ],
)
def test_half_precision_stays_near_float32(
    policy: Path, fsdp: FSDPConfig, one_process_run: dict[str, Any]
):
    trained = engine(make_settings(policy, fsdp=fsdp))
    got = train(trained, ONE_PROCESS, range(1))[0]
    assert got["policy/loss"] == pytest.approx(one_process_run["curve"][0]["policy/loss"], abs=0.05)
    assert got["policy/grad_norm"] == pytest.approx(
        one_process_run["curve"][0]["policy/grad_norm"], rel=0.1
    )
    assert {dtype for _, dtype, _ in trained.manifest()} == {getattr(torch, fsdp.model_dtype)}


def test_epochs_and_mini_batches_are_optimizer_steps(policy: Path):
    trained = engine(make_settings(policy, ppo_epochs=2))
    batches = [make_batch(3, seed=0), make_batch(3, seed=1)]
    metrics = trained.update(batches)
    assert metrics["policy/tokens"] == 2 * sum(
        batch.response_mask.values.sum() for batch in batches
    )
    with pytest.raises(ConfigError, match="4 optimizer steps on one batch need old_logprobs"):
        trained.update([make_batch(3, seed=0, streams=False)] * 2)


def test_without_old_logprobs_the_ratio_is_one(policy: Path):
    trained = engine(make_settings(policy, use_kl_loss=False))
    metrics = trained.update([make_batch(4, seed=0, streams=False)])
    assert metrics["policy/kl"] == 0
    assert metrics["policy/clip_fraction"] == 0
    assert metrics["policy/grad_norm"] > 0


# --- two processes


def two_process_job(
    process: ProcessSettings, policy: str, saved_by_one: str, folder: str
) -> dict[str, Any]:
    """Everything that needs two processes, in one start-up."""
    trained = FSDPEngine(
        settings=make_settings(Path(policy), ppo_max_token_len_per_gpu=40), process=process
    )
    curve = train(trained, process, range(3))
    trained.save(f"{folder}/two")
    curve += train(trained, process, range(3, UPDATES))
    logprobs = trained.logprobs(
        make_batch(5, seed=99)
    ).values.tolist()  # both processes get all rows: same answer as alone
    trained.save_hf(f"{folder}/hf")
    trained.export_weights(f"{folder}/weights.safetensors", "float32")

    few = trained.update([share(make_batch(1, seed=7), process)])  # rank 1 has no row at all
    trained.load(saved_by_one)
    resumed = train(trained, process, range(3, UPDATES))

    hybrid_settings = make_settings(Path(policy), fsdp=FSDPConfig(param_dtype=None, fsdp_size=1))
    hybrid = train(FSDPEngine(settings=hybrid_settings, process=process), process, range(UPDATES))
    trained.close()
    return {"curve": curve, "logprobs": logprobs, "few": few, "resumed": resumed, "hybrid": hybrid}


@pytest.fixture(scope="module")
def two_process_run(
    policy: Path, one_process_run: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("two")
    result = run_group(
        two_process_job, 2, folder, str(policy), str(one_process_run["saved"]), str(folder)
    )
    return {**result, "folder": folder}


@pytest.mark.parametrize(
    ("how", "first"),
    [
        pytest.param("curve", 0, id="shards"),
        pytest.param("hybrid", 0, id="replicas of shards"),
        pytest.param("resumed", 3, id="what one process saved"),
    ],
)
def test_two_processes_learn_as_one(
    one_process_run: dict[str, Any], two_process_run: dict[str, Any], how: str, first: int
):
    assert_same_curve(two_process_run[how], one_process_run["curve"][first:])


def test_two_processes_compute_as_one(
    one_process_run: dict[str, Any], two_process_run: dict[str, Any]
):
    assert two_process_run["logprobs"] == pytest.approx(
        one_process_run["logprobs"].tolist(), abs=1e-4
    )


def test_one_process_resumes_what_two_saved(
    policy: Path, one_process_run: dict[str, Any], two_process_run: dict[str, Any]
):
    resumed = engine(make_settings(policy))
    resumed.load(str(two_process_run["folder"] / "two"))
    assert_same_curve(train(resumed, ONE_PROCESS, range(3, UPDATES)), one_process_run["curve"][3:])


def test_a_process_without_rows_takes_part(two_process_run: dict[str, Any]):
    assert two_process_run["few"]["policy/skipped_updates"] == 0
    assert two_process_run["few"]["policy/grad_norm"] > 0


def test_gathered_weights_are_whole(two_process_run: dict[str, Any]):
    folder = two_process_run["folder"]
    exported = load_file(folder / "weights.safetensors")
    model = AutoModelForCausalLM.from_pretrained(folder / "hf")
    assert all(
        torch.equal(parameter, exported[name]) for name, parameter in model.named_parameters()
    )
    assert not list(folder.glob(".*"))


def test_the_folder_has_the_dtype_of_compute_and_the_weights_that_of_training(
    policy: Path, tmp_path: Path
):
    trained = engine(make_settings(policy, fsdp=FSDPConfig(param_dtype="bfloat16")))
    trained.save_hf(str(tmp_path / "hf"))
    stored = load_file(tmp_path / "hf" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    for name, tensor in trained.weights():
        assert tensor.dtype is torch.float32
        assert torch.equal(tensor.bfloat16(), stored[name])


def test_errors_before_anything_is_built(policy: Path):
    settings = make_settings(policy, fsdp=FSDPConfig(fsdp_size=3))
    with pytest.raises(ConfigError, match="fsdp_size=3 does not divide the 1 training process "):
        engine(settings)
    with pytest.raises(ConfigError, match="model_dtype=float17: not a dtype"):
        engine(make_settings(policy, fsdp=FSDPConfig(model_dtype="float17")))


def test_optimizer_state_is_on_the_device_for_steps_and_checkpoints_alone(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = engine(make_settings(policy))
    part = ours._part
    calls: list[str] = []

    def recorded(name: str, method: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            entry = name
            if name.startswith("move"):
                # On CPU both devices are the same one.
                entry = f"{name} {'on' if arguments[0] is part.device else 'off'}"
            calls.append(entry)
            return method(*arguments, **named)

        return call

    for name in ("move", "move_optimizer", "compute", "step", "save_tensors", "load_tensors"):
        monkeypatch.setattr(part, name, recorded(name, getattr(part, name)))
    batch = make_batch(4, seed=0)
    ours.onload()
    ours.logprobs(batch)
    assert calls == ["move on", "compute"]
    calls.clear()
    ours.update([batch, batch])
    assert calls == [*["move_optimizer on", "step"] * 2, "move_optimizer off"]
    calls.clear()
    ours.export_weights(str(tmp_path / "weights"), "float32")
    ours.save(str(tmp_path / "saved"))
    ours.load(str(tmp_path / "saved"))
    ours.offload()
    assert calls == [
        *("move_optimizer on", "save_tensors", "move_optimizer off"),
        *("move_optimizer on", "load_tensors", "move_optimizer off"),
        *("move_optimizer off", "move off"),
    ]


def test_a_worker_writes_a_trace_and_reports_its_memory(policy: Path, tmp_path: Path) -> None:
    worker = TrainWorker({"actor": make_settings(policy)}, ONE_PROCESS)
    batch = make_batch(4, seed=0)
    for step in (1, 2):  # a second trace of the same process
        worker.start_profile()
        worker.on("actor", "update", [batch])
        path = tmp_path / "profile" / f"step_{step}.json"
        worker.write_profile(str(path))
        trace = json.loads(path.read_text(encoding="utf-8"))
        names = {event.get("name", "") for event in trace["traceEvents"]}
        assert any("mm" in name for name in names)
        assert any("FusedAdam" in name or "Optimizer.step" in name for name in names)
    memory = worker.phase_memory()
    assert memory.device == ""
    assert memory.bytes["resident_bytes"] > 100 * 2**20
