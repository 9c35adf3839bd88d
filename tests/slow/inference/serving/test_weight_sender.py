"""vLLM's weight transfer as the installed vLLM has it: our arguments fit, and the whole exchange
runs with a transport of bytes.

CUDA IPC and NCCL need GPUs. Everything but their data plane is exercised here on a real engine: the
handshake, the calls in their order, a sleeping engine, tied weights, the prefix cache, versions.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from rmrl.cluster.engine_client import EngineClient
from rmrl.config.schema.rollout import RolloutConfig
from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.inference.vllm.rollout import VLLMRollout
from rmrl.inference.weights.sender import INIT_INFOS, TransferLink, WeightSender, transfer_options
from rmrl.registry import load_attribute
from rmrl.types import Generation, Sampling
from tests.engine_models import write_llama
from tests.engine_process import run_in_engine_process
from tests.patience import PATIENCE_S

PROMPTS = [
    [(7 * i + 13 * n) % 1000 + 4 for i in range(n)] for n in (5, 300)
]  # 300: longer than a block of the prefix cache
GREEDY = Sampling(max_tokens=12, temperature=0.0, ignore_eos=True)


class Weights:
    """A training engine of one process: parameters of a model, tied ones once."""

    def __init__(self, folder: str, seed: int) -> None:
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.03)

    def manifest(self, dtype: str) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
        return [
            (name, getattr(torch, dtype), tuple(p.shape))
            for name, p in self.model.named_parameters()
        ]

    def weights(self, dtype: str) -> Iterator[tuple[str, torch.Tensor]]:
        return (
            (name, p.detach().to(getattr(torch, dtype)))
            for name, p in self.model.named_parameters()
        )

    def logprob(self, prompt: list[int], generation: Generation) -> torch.Tensor:
        tokens = torch.tensor([[*prompt, *generation.token_ids]])
        with torch.no_grad():
            logits = self.model(tokens).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        return logits.gather(1, tokens[0, len(prompt) :, None])[:, 0]


class LoopClient:
    """Calls an engine that lives on the event loop of this process, from another thread."""

    def __init__(self, engine: VLLMRollout) -> None:
        self.engine, self.loop, self.version = engine, asyncio.get_running_loop(), 0
        self.calls: list[str] = []
        self.complete = True

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._call("init_weight_transfer_engine", init_info)

    def start_weight_update(self) -> None:
        self._call("start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        self._call("update_weights", update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._call("finish_weight_update", self.version)

    def _call(self, method: str, *args: Any) -> None:
        self.calls.append(method)
        asyncio.run_coroutine_threadsafe(getattr(self.engine, method)(*args), self.loop).result(60)


def register_by_value() -> None:
    """A transport that puts the tensors themselves into the calls: vLLM's two base classes, filled
    in as its own backends do."""
    from vllm.distributed.weight_transfer import (
        WeightTransferEngineFactory,
        WeightTransferTrainerFactory,
        base,
    )
    from vllm.model_executor.model_loader.reload import (
        finalize_layerwise_reload,
        initialize_layerwise_reload,
    )

    @dataclasses.dataclass
    class Init(base.WeightTransferInitInfo):
        word: str

    @dataclasses.dataclass
    class Update(base.WeightTransferUpdateInfo):
        weights: list[tuple[str, torch.Tensor]]

    class Engine(base.WeightTransferEngine[Any, Any]):
        init_info_cls, update_info_cls = Init, Update

        def init_transfer_engine(self, init_info: Init) -> None:
            assert init_info.word == "hello"

        def start_weight_update(self) -> None:
            initialize_layerwise_reload(self.model)

        def finish_weight_update(self) -> None:
            finalize_layerwise_reload(self.model, self.model_config)

        def update_weights(self, update_info: dict[str, Any]) -> None:
            self.receive_weights(self.parse_update_info(update_info))

        def receive_weights(self, update_info: Update) -> None:
            self.model.load_weights(update_info.weights)

        def shutdown(self) -> None:
            pass

    class Trainer(base.TrainerWeightTransferEngine[Any]):
        @classmethod
        def trainer_init(cls, init_info: Any, *, client: Any, source: Any = None) -> Any:
            client.init_weight_transfer_engine({"word": init_info.word})
            return cls(client=client, source=source, is_sender=init_info.is_sender)

        def send_weights(self) -> None:
            self.client.start_weight_update()
            names = []
            for name, tensor in self.source or ():
                names.append(name)
                self.client.update_weights({"weights": [(name, tensor)]})
            assert names == [meta.name for meta in self.source.metadata()]
            self.client.finish_weight_update()

    WeightTransferEngineFactory.register_engine("by_value", Engine)
    WeightTransferTrainerFactory.register_engine("by_value", Trainer)


def trainer_info(*, rank: int, word: str) -> Any:
    from vllm.distributed.weight_transfer.base import TrainerInitInfo

    @dataclasses.dataclass
    class Info(TrainerInitInfo):
        backend = "by_value"
        word: str = dataclasses.field(kw_only=True)

    return Info(rank=rank, word=word)


def exchange(folder: str) -> dict[str, Any]:
    return asyncio.run(_exchange(folder))


async def _exchange(folder: str) -> dict[str, Any]:
    register_by_value()
    INIT_INFOS["by_value"] = "tests.slow.inference.serving.test_weight_sender:trainer_info"
    config = RolloutConfig(
        dtype="float32", kv_cache_bytes=64 * 2**20, max_num_seqs=8, max_num_batched_tokens=1024
    )
    decided = {
        "path": folder,
        "tokenizer": None,
        "device": "cpu",
        "threads": 1,
        "max_model_len": 512,
        "trust_remote_code": False,
    }
    kwargs = {"weight_transfer_config": {"backend": "by_value"}}
    engine = VLLMRollout(RolloutEngineSettings.of(config, **decided, kwargs=kwargs))
    await engine.start()
    found: dict[str, Any] = {"base": await _greedy(engine)}
    await engine.sleep(1)
    client, weights = LoopClient(engine), Weights(folder, seed=1)
    link = TransferLink(
        transport="by_value", rank=0, client=client, dtype="float32", options={"word": "hello"}
    )
    sender = await asyncio.to_thread(WeightSender, weights, link)
    found["bytes"] = (await asyncio.to_thread(sender.send, 7)).bytes
    await engine.wake()
    found["sent"], found["calls"] = await _greedy(engine), client.calls
    found["apart"] = max(_apart(weights, generations) for generations in (found["sent"],))
    found["apart before"] = _apart(weights, found["base"])
    again = Weights(folder, seed=2)
    sender_again = await asyncio.to_thread(WeightSender, again, link)
    await asyncio.to_thread(sender_again.send, 8)
    found["apart again"], found["parameters"] = (
        _apart(again, await _greedy(engine)),
        len(weights.manifest("float32")),
    )
    return found


async def _greedy(engine: VLLMRollout) -> list[Generation]:
    return sorted([g async for g in engine.generate(PROMPTS, GREEDY)], key=lambda g: g.prompt_index)


def _apart(weights: Weights, generations: list[Generation]) -> float:
    """The largest difference of log-probabilities between the engine and the model."""
    pairs = zip(PROMPTS, generations, strict=True)
    return max(
        float((weights.logprob(prompt, g) - torch.tensor(g.logprobs)).abs().max())
        for prompt, g in pairs
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_in_engine_process(exchange, str(write_llama(tmp_path_factory.mktemp("lm"))))


def test_the_engine_samples_with_what_was_sent(found: dict[str, Any]) -> None:
    assert found["apart before"] > 0.01
    assert found["apart"] < 2e-4
    assert found["apart again"] < 2e-4
    assert [g.policy_version for g in found["base"]] == [0, 0]
    assert [g.policy_version for g in found["sent"]] == [7, 7]


def test_the_calls_come_in_vllms_order(found: dict[str, Any]) -> None:
    expected = [
        "init_weight_transfer_engine",
        "start_weight_update",
        *["update_weights"] * found["parameters"],
        "finish_weight_update",
    ]
    assert found["calls"][: len(expected)] == expected
    assert found["bytes"] > 1000


@pytest.mark.parametrize(
    ("rows", "buffer"),
    [(1000, None), (2**29, None), (2**29 + 1, 2**30 + 2), (152_064 * 3584, 1_089_994_752)],
)
def test_the_largest_tensor_fits_the_packed_buffer(rows: int, buffer: int | None) -> None:
    """bfloat16: two bytes each. The last one is the embedding of a model with 7 billion
    parameters: 152,064 * 3,584 * 2 bytes, more than vLLM's 2**30."""
    manifest = [("small", torch.bfloat16, (3,)), ("embedding", torch.bfloat16, (rows,))]
    sizes = {"packed": True}
    if buffer is not None:
        sizes["packed_buffer_size_bytes"] = buffer
    assert transfer_options({"packed": True}, manifest) == sizes
    assert transfer_options({"master_port": 1}, manifest) == {"master_port": 1}


def test_our_settings_fit_vllms_training_side() -> None:
    ipc, nccl = (load_attribute(INIT_INFOS[name]) for name in ("ipc", "nccl"))
    assert ipc(rank=1, packed=True, packed_buffer_size_bytes=2**31).is_sender is False
    made = nccl(rank=0, master_address="10.0.0.1", master_port=29500, world_size=5)
    assert made.is_sender
    assert (made.backend, ipc.backend) == ("nccl", "ipc")


def test_the_client_is_what_vllm_expects() -> None:
    from vllm.distributed.weight_transfer.base import VLLMWeightSyncClient
    from vllm.v1.worker.gpu_worker import Worker

    methods = (
        "init_weight_transfer_engine",
        "start_weight_update",
        "update_weights",
        "finish_weight_update",
    )
    for method in methods:
        wanted = inspect.signature(getattr(VLLMWeightSyncClient, method)).parameters
        assert list(inspect.signature(getattr(EngineClient, method)).parameters) == list(wanted)
    taken = {
        method: list(inspect.signature(getattr(Worker, method)).parameters)[1:]
        for method in methods
    }
    assert taken == dict(zip(methods, (["init_info"], [], ["update_info"], []), strict=True))


def test_engines_get_ranks_of_their_own_behind_the_sender() -> None:
    from vllm.distributed.weight_transfer.nccl_common import (
        NCCLWeightTransferInitInfo,
        worker_init_payload,
    )

    given = worker_init_payload(
        NCCLWeightTransferInitInfo(
            master_address="10.0.0.1", master_port=29500, rank_offset=1, world_size=5
        )
    )
    client = EngineClient([], devices_per_engine=2, timeout_s=PATIENCE_S, outlives_engines=False)
    sent = [client.init_info_of(given, engine) for engine in range(2)]
    assert [NCCLWeightTransferInitInfo(**info).rank_offset for info in sent] == [
        1,
        3,
    ]  # two engines of two devices: ranks 1, 2 and 3, 4
    assert client.init_info_of({"packed": True}, 1) == {"packed": True}
