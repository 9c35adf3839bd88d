from pathlib import Path

import pytest
import torch

from rmrl.config.schema.rollout import RolloutConfig
from rmrl.errors import InfrastructureError
from rmrl.inference.hf.rollout import HFRollout
from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.inference.weights.file import write_weights
from rmrl.types import Sampling
from tests.engine_models import write_llama

PROMPTS = [[5, 6, 7], [8] * 9, [9]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("lm"))


async def started(folder: Path, *, dtype: str = "float32") -> HFRollout:
    config = RolloutConfig(name="hf", dtype=dtype, max_num_seqs=2)
    engine = HFRollout(
        RolloutEngineSettings.of(
            config,
            path=str(folder),
            tokenizer=None,
            device="cpu",
            threads=1,
            max_model_len=64,
            trust_remote_code=False,
            float32_head=dtype == "bfloat16",
        )
    )
    await engine.start()
    return engine


async def test_padding_changes_nothing_and_logprobs_are_tempered(folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    engine, model = await started(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    sampling = Sampling(max_tokens=6, temperature=0.7, n=2, seed=3)
    generations = [g async for g in engine.generate(PROMPTS, sampling)]
    assert sorted((g.prompt_index, g.sample_index) for g in generations) == [
        (p, s) for p in range(3) for s in range(2)
    ]
    for g in generations:
        sequence = torch.tensor([PROMPTS[g.prompt_index] + list(g.token_ids)])
        with torch.no_grad():
            logits = model(sequence).logits[0, -len(g.token_ids) - 1 : -1] / 0.7
        expected = [
            row.log_softmax(-1)[token].item()
            for row, token in zip(logits, g.token_ids, strict=True)
        ]
        assert g.logprobs == pytest.approx(expected, abs=1e-5)
    assert [g async for g in engine.generate(PROMPTS, sampling)] == generations


async def test_a_head_in_float32_does_not_round(folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    engine = await started(folder, dtype="bfloat16")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    async for sample in engine.generate(PROMPTS[:1], Sampling(max_tokens=1, n=4, seed=1)):
        with torch.no_grad():
            hidden_H = model.model(torch.tensor(PROMPTS[:1])).last_hidden_state[0, -1].float()
            logprobs_V = (model.lm_head.weight.float() @ hidden_H).log_softmax(-1)
        assert sample.logprobs[0] == pytest.approx(float(logprobs_V[sample.token_ids[0]]), abs=1e-6)


async def test_published_weights_reach_the_tied_head(folder: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    engine, model = await started(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    named = dict(model.named_parameters())
    assert "lm_head.weight" not in named
    write_weights(tmp_path / "w", [(n, p.dtype, p.shape) for n, p in named.items()], named.items())
    await engine.load_weights(str(tmp_path / "w"), version=5)
    (g,) = [
        g
        async for g in engine.generate(
            [[5, 6, 7]], Sampling(max_tokens=8, temperature=0.0, ignore_eos=True)
        )
    ]
    expected = model.generate(
        torch.tensor([[5, 6, 7]]),
        do_sample=False,
        max_new_tokens=8,
        eos_token_id=None,
        pad_token_id=0,
    )[0, 3:]
    assert list(g.token_ids) == expected.tolist()
    assert g.policy_version == 5


async def test_a_foreign_tensor_is_refused(folder: Path, tmp_path: Path) -> None:
    engine = await started(folder)
    write_weights(
        tmp_path / "w", [("nobody.weight", "float32", [1])], [("nobody.weight", torch.zeros(1))]
    )
    with pytest.raises(InfrastructureError, match=r"nobody\.weight"):
        await engine.load_weights(str(tmp_path / "w"), version=1)


async def test_sleep(folder: Path) -> None:
    engine = await started(folder)
    await engine.sleep()
    with pytest.raises(InfrastructureError, match="asleep"):
        _ = [g async for g in engine.generate([[5]], Sampling(max_tokens=1))]
    await engine.wake()
    assert len([g async for g in engine.generate([[5]], Sampling(max_tokens=1))]) == 1
