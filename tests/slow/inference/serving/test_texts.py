"""Texts decoded once beside those of vLLM's incremental detokenizer, which this process calls
itself and a real engine runs."""

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from rmrl.inference.vllm.rollout import VLLMRollout
from rmrl.inference.vllm.texts import SampleTexts
from rmrl.types import Generation, Sampling
from tests.engine_models import write_llama
from tests.engine_process import run_in_engine_process
from tests.slow.inference.rollout.test_vllm import settings

WORDS = [
    "the", " the", " ", "  ", "\n", "a", "né", "日本", "語", "👍🏽", "ﬁ", " don", "'t", " ,", ".",
]  # fmt: skip


def _byte_level() -> Any:
    """Every byte, and tokens that hold parts of characters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    draw = random.Random(0)
    pairs = {"".join(draw.choices(letters, k=draw.randint(2, 4))) for _ in range(300)}
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = {piece for word in WORDS for piece, _ in split.pre_tokenize_str(word)}
    tokens = dict.fromkeys([*letters, *sorted(pairs | words)])
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _byte_fallback() -> Any:
    """Llama 2: spaces are a letter, bytes are tokens, the first space of a text is dropped."""
    from tokenizers import Tokenizer, decoders, models

    tokens = ["<unk>", *[f"<0x{i:02X}>" for i in range(256)]]
    tokens += [word.replace(" ", "▁") for word in WORDS] + ["▁▁▁", "\ufffd"]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ])  # fmt: skip
    return tokenizer


def _word_pieces() -> Any:
    from tokenizers import Tokenizer, decoders, models

    tokens = ["[UNK]", "the", "##ing", "do", "not", "n't", "'", "s", ".", ",", "?", "日", "##語"]
    tokenizer = Tokenizer(
        models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]")
    )
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _metaspace() -> Any:
    from tokenizers import Tokenizer, decoders, models

    tokens = ["<unk>", *dict.fromkeys(word.replace(" ", "▁") for word in WORDS), "▁▁▁"]
    tokenizer = Tokenizer(
        models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="<unk>")
    )
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


KINDS = {
    "bytes": _byte_level,
    "byte fallback": _byte_fallback,
    "word pieces": _word_pieces,
    "metaspace": _metaspace,
}


def _fast(kind: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    tokenizer = KINDS[kind]()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.add_tokens(["<tool>"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", bos_token="<s>")


def _row(draw: random.Random, tokenizer: Any, most: int, *, clean: bool) -> list[int]:
    """Return tokens of words, cut anywhere (also within a character); not `clean`: and any
    others."""
    row: list[int] = []
    size = len(tokenizer)
    while len(row) < most:
        if clean or draw.random() < 0.6:
            row += tokenizer(draw.choice(WORDS), add_special_tokens=False)["input_ids"] or [0]
        elif draw.random() < 0.3:
            row.append(size - draw.randint(1, 3))  # special and added ones
        else:
            row.append(draw.randrange(size))
    return row[:most]


def compared(kind: str, folder: str) -> dict[str, Any]:
    """Decode 3,000 samples both ways; return the differences and how often vLLM's way was taken."""
    from transformers import AutoTokenizer

    from rmrl.inference.vllm import compat
    from rmrl.inference.vllm.sampling import sampling_params

    tokenizer = AutoTokenizer.from_pretrained(folder) if folder else _fast(kind)
    texts = SampleTexts(tokenizer)
    params = sampling_params(Sampling(max_tokens=1), detokenize=False)
    incremental = compat.detokenized
    replays: list[int] = []

    def counted(*args: Any, **kwargs: Any) -> str:
        replays.append(1)
        return incremental(*args, **kwargs)

    compat.detokenized = counted
    draw = random.Random(1)
    differences: list[tuple[Any, ...]] = []
    written: set[str] = set()
    for _ in range(3000):
        clean = draw.random() < 0.5
        prompt = _row(draw, tokenizer, draw.randint(1, 12), clean=clean)
        tokens = _row(draw, tokenizer, draw.randint(1, 15), clean=clean)
        if draw.random() < 0.2:
            prompt = [tokenizer.bos_token_id or 0] * draw.randint(1, 3)
        reason = draw.choice(["stop", "length"])
        expected = incremental(
            tokenizer, prompt, tokens, stop_terminated=reason == "stop", params=params
        )
        text = texts.text(prompt, tokens, finish_reason=reason, params=params)
        written.add(text)
        if text != expected:
            differences.append((prompt, tokens, reason, text, expected))
    return {"differences": differences[:3], "texts": len(written), "replays": len(replays)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_decoded_once_is_that_of_the_incremental_detokenizer(kind: str) -> None:
    result = run_in_engine_process(compared, kind, "")
    assert result["differences"] == []
    assert result["texts"] > 1000
    # Both ways were taken: bytes that are no character leave it to vLLM's detokenizer.
    assert (0 < result["replays"] < 2700) == ("byte" in kind)


def test_the_texts_of_a_real_tokenizer(smollm2: Path) -> None:
    result = run_in_engine_process(compared, "", os.fspath(smollm2))
    assert result["differences"] == []
    assert 0 < result["replays"] < 2700


RANDOM = Sampling(max_tokens=24, temperature=1.5, n=16, seed=7)
"""Texts of a random model: half of them end within a character."""
STOPPED = Sampling(max_tokens=24, temperature=1.5, n=16, seed=7, stop=("a", "é"))


async def _both_ways(folder: str) -> dict[str, list[Generation]]:
    engine = VLLMRollout(settings(folder))
    await engine.start()
    prompts = [[40 + i, 65, 66 + i] for i in range(12)]
    found = {"once": await _samples(engine, prompts, RANDOM)}
    assert not engine._texts.needs_vllm(RANDOM)
    assert engine._texts.needs_vllm(STOPPED)
    found["stopped"] = await _samples(engine, prompts, STOPPED)
    engine._texts.needs_vllm = lambda _: True  # type: ignore[method-assign]
    found["by token"] = await _samples(engine, prompts, RANDOM)
    return found


async def _samples(
    engine: VLLMRollout, prompts: list[list[int]], sampling: Sampling
) -> list[Generation]:
    samples = [sample async for sample in engine.generate(prompts, sampling)]
    return sorted(samples, key=lambda sample: (sample.prompt_index, sample.sample_index))


def both_ways(folder: str) -> dict[str, list[Generation]]:
    return asyncio.run(_both_ways(folder))


def test_an_engine_that_decodes_once_gives_the_same_texts(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "lm")
    _fast("bytes").save_pretrained(folder)
    found = run_in_engine_process(both_ways, os.fspath(folder))
    rows = [(s.token_ids.tolist(), s.text, s.finish_reason) for s in found["once"]]
    by_token = [(s.token_ids.tolist(), s.text, s.finish_reason) for s in found["by token"]]
    assert rows == by_token
    assert len({text for _, text, _ in rows}) > 100
    stopped = [sample for sample in found["stopped"] if sample.finish_reason == "stop"]
    assert stopped
    assert not any("a" in sample.text or "é" in sample.text for sample in found["stopped"])
