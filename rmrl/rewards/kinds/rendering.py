"""What a reward model reads: from items to token ids, through a drop-in's rm_preprocess or the kind's own default."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.errors import RewardFunctionError
from rmrl.rewards.dropin import DropIn, call_with_known_arguments, describe_exception
from rmrl.rewards.judging.untrusted import neutraliser
from rmrl.types import Messages, ScoreItem, ScoreResult


@dataclass(frozen=True, slots=True)
class Rendered:
    """One input of a reward model. `text` is for people; `token_type_ids` only for encoders that read pairs."""

    text: str
    token_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...] | None = None


NOTHING_TO_READ = ScoreResult(value=None, status="user_error", detail="the reward model's input is empty: it has no token")


def fill_in(rendered: Sequence[Rendered], scored: Sequence[ScoreResult]) -> list[ScoreResult]:
    """The results of all inputs, given those of the ones that hold a token: engines refuse empty inputs."""
    results = iter(scored)
    return [next(results) if read.token_ids else NOTHING_TO_READ for read in rendered]


def named_columns(items: Sequence[ScoreItem]) -> dict[str, list[Any]]:
    """The further keyword arguments a drop-in may name in its signature."""
    return {
        "ground_truths": [item.ground_truth for item in items],
        "extra_infos": [item.extra_info for item in items],
        "data_sources": [item.data_source for item in items],
        "prompts": [item.messages for item in items],
    }


def preprocess(dropin: DropIn, items: Sequence[ScoreItem], tokenizer: Any) -> list[Any]:
    """rm_preprocess on all items. Raises RewardFunctionError when it raises or returns another number of inputs."""
    assert dropin.preprocess is not None
    neutral = neutraliser(tokenizer)
    texts = [neutral(item.response) for item in items]
    try:
        returned = call_with_known_arguments(
            dropin.preprocess, ([item.rm_prompt for item in items], texts, tokenizer), named_columns(items)
        )
    except Exception as error:
        raise RewardFunctionError(f"rm_preprocess of reward '{dropin.name}' raised {describe_exception(error)}") from error
    return checked_length(returned, len(items), what=f"rm_preprocess of reward '{dropin.name}'", noun="input")


def postprocess(dropin: DropIn, results: list[Any], items: Sequence[ScoreItem]) -> list[Any]:
    """rm_postprocess on all results, with the same checks."""
    assert dropin.postprocess is not None
    try:
        returned = call_with_known_arguments(dropin.postprocess, (results,), named_columns(items))
    except Exception as error:
        raise RewardFunctionError(f"rm_postprocess of reward '{dropin.name}' raised {describe_exception(error)}") from error
    return checked_length(returned, len(results), what=f"rm_postprocess of reward '{dropin.name}'", noun="score")


def checked_length(returned: Any, expected: int, *, what: str, noun: str) -> list[Any]:
    """`returned` as a list of `expected` entries; never broadcast, never cut."""
    if isinstance(returned, str | bytes | Mapping) or not hasattr(returned, "__len__"):
        raise RewardFunctionError(f"{what} returned {type(returned).__name__}; a list with one {noun} per response is needed")
    if len(returned) != expected:
        raise RewardFunctionError(
            f"{what} returned {len(returned)} {noun}s for {expected} responses; return exactly one per response, in order"
        )
    return list(returned)


def tokenize(read: Any, tokenizer: Any, *, generation_prompt: bool, where: str) -> Rendered:
    """A string (taken as it is), token ids, messages (the chat template is applied) or a (text, text) pair -> token ids.

    Token ids may be a list, an array of one dimension, or what `tokenizer(text)` returns. Raises RewardFunctionError naming `where`.
    """
    if isinstance(read, str):
        return _text(read, tokenizer)
    if isinstance(read, tuple) and len(read) == 2 and all(isinstance(part, str) for part in read):
        return _pair(read, tokenizer)
    ids = _token_ids(read)
    if ids is not None:
        return _ids(ids, tokenizer, where)
    if isinstance(read, Sequence) and read and all(isinstance(m, Mapping) and {"role", "content"} <= set(m) for m in read):
        return _messages(read, tokenizer, generation_prompt, where=where)
    raise RewardFunctionError(
        f"{where} returned {repr(read)[:80]} ({type(read).__name__}) as an input; give a string, token ids, a list of "
        "{role, content} messages, or a (text, text) tuple for an encoder that reads pairs"
    )


def _token_ids(read: Any) -> tuple[int, ...] | None:
    """Whole numbers out of a list, an array or a tokenizer's output; None where it is none of these."""
    found: Any = read["input_ids"] if isinstance(read, Mapping) and "input_ids" in read else read
    if hasattr(found, "tolist"):
        found = found.tolist()
    if not isinstance(found, Sequence) or isinstance(found, bytes) or not found:
        return None
    whole = all(not isinstance(token, bool) and isinstance(token, numbers.Integral) for token in found)
    return tuple(int(token) for token in found) if whole else None


def _ids(ids: tuple[int, ...], tokenizer: Any, where: str) -> Rendered:
    stray = next((token for token in ids if not 0 <= token < len(tokenizer)), None)
    if stray is not None:
        raise RewardFunctionError(
            f"{where} returned token id {stray}, and the reward model's tokenizer has {len(tokenizer)} tokens; tokenize with tgt_tokenizer"
        )
    return Rendered(tokenizer.decode(list(ids)), ids)


def _text(text: str, tokenizer: Any) -> Rendered:
    bos = tokenizer.bos_token or ""
    templated = bool(bos) and text.startswith(bos)
    return Rendered(text, tuple(tokenizer(text, add_special_tokens=not templated)["input_ids"]))


def _pair(pair: tuple[str, str], tokenizer: Any) -> Rendered:
    encoded = tokenizer(*pair)
    types = encoded.get("token_type_ids")
    return Rendered(f"{pair[0]}\n---\n{pair[1]}", tuple(encoded["input_ids"]), tuple(types) if types is not None else None)


def _messages(messages: Messages, tokenizer: Any, generation_prompt: bool, *, where: str) -> Rendered:
    if not tokenizer.chat_template:
        raise RewardFunctionError(
            f"messages need a chat template, and the tokenizer of {tokenizer.name_or_path} has none; return strings instead"
        )
    try:
        text = tokenizer.apply_chat_template([dict(m) for m in messages], tokenize=False, add_generation_prompt=generation_prompt)
    except Exception as error:  # a template is a program of the checkpoint's: it may raise anything
        roles = ", ".join(str(m["role"]) for m in messages)
        raise RewardFunctionError(
            f"{where}: the chat template of {tokenizer.name_or_path} refuses messages of the roles {roles}: {describe_exception(error)}"
        ) from error
    return Rendered(text, tuple(tokenizer(text, add_special_tokens=False)["input_ids"]))
