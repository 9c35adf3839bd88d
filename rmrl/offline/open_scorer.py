"""Open the scorer for checked files, and count tokens with their tokenizer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from rmrl.assemble.build import standalone_scorer
from rmrl.data.responses import CountTokens
from rmrl.data.surrogates import replaced
from rmrl.offline.check_scoring import CheckedScoring, without_tokenizer
from rmrl.rewards.session.scorer import Scorer

OpenScorer = Callable[[], AbstractAsyncContextManager[Scorer]]


@asynccontextmanager
async def open_scorer(checked: CheckedScoring) -> AsyncIterator[Scorer]:
    """Open a scorer with its own processes, which end with the block."""
    async with standalone_scorer(
        checked.specs,
        checked.config.reward,
        engines=checked.engines,
        budget=checked.budget,
        device=checked.device,
        trainer=checked.config.trainer,
        ray_init=checked.config.ray_kwargs.ray_init,
    ) as scorer:
        yield scorer


def token_counter(checked: CheckedScoring) -> CountTokens | None:
    """Return a function that counts a text's tokens with the policy's tokenizer. Without
    data.tokenizer it raises FieldError where a reward depends on them, and is None elsewhere."""
    path = checked.config.data.tokenizer
    if path is None:
        return without_tokenizer(checked.config, checked.specs)
    # transformers takes seconds to import, and rules do not need it
    from rmrl.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(path, trust_remote_code=checked.config.trainer.trust_remote_code)

    def count(text: str) -> int:
        return len(tokenizer(replaced(text), add_special_tokens=False)["input_ids"])

    return count
