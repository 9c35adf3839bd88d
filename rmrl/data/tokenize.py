"""Prompts tokenized: chat template, length filter, truncation.

A tokenizer without a chat template (a base model) encodes plain-string prompts unchanged; chat
messages are an error then.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from jinja2.exceptions import TemplateError
from tqdm import tqdm

from rmrl.config.schema.data import DataConfig
from rmrl.data.problems import shown
from rmrl.data.schema import PromptRow
from rmrl.data.surrogates import replaced
from rmrl.errors import ConfigError, DataError
from rmrl.registry import did_you_mean

TRUNCATIONS = ("error", "left", "right", "middle")
Tokens: TypeAlias = "array[int]"
"""A row's token ids, four bytes each. A list takes up to 36 for each."""
CHUNK_ROWS = 512
"""Rows per call of the tokenizer."""
_BAR_FROM = 20
"""Number of chunks from which a progress bar is displayed."""
_LISTED_OVERLONG = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthReport:
    """`fit_lengths`' result, in rows and tokens."""

    kept: list[int]
    """Positions of the remaining rows."""
    token_ids: list[Tokens]
    """Tokens of the remaining rows, at most data.max_prompt_length each."""
    dropped: int
    cut: int


def encode_rows(
    rows: Sequence[PromptRow], tokenizer: Any, *, template_kwargs: Mapping[str, Any]
) -> list[Tokens]:
    """Return every row's token ids, with the generation prompt, before truncation; display a
    progress bar for many rows.

    Fast tokenizers use all cores by themselves. Raises DataError where the chat template is
    missing, raises on a row or renders an empty text.
    """
    starts = range(0, len(rows), CHUNK_ROWS)
    token_ids: list[Tokens] = []
    for start in tqdm(starts, desc="tokenize", disable=len(starts) < _BAR_FROM, leave=False):
        chunk = rows[start : start + CHUNK_ROWS]
        token_ids += encode_chunk(chunk, tokenizer, template_kwargs)
    return token_ids


def encode_chunk(
    rows: Sequence[PromptRow], tokenizer: Any, template_kwargs: Mapping[str, Any]
) -> list[Tokens]:
    """Return a few rows' token ids, without a progress bar. See `encode_rows`. A lone surrogate is
    read as U+FFFD."""
    if not rows:
        return []
    chat = bool(getattr(tokenizer, "chat_template", None))
    texts = [replaced(render(row, tokenizer, template_kwargs)) for row in rows]
    # A chat template writes the special tokens itself; a bare text needs those the tokenizer adds
    # (such as BOS).
    encoded = tokenizer(
        texts, add_special_tokens=not chat, return_attention_mask=False, verbose=False
    )["input_ids"]
    for row, text, ids in zip(rows, texts, encoded, strict=True):
        if not len(ids):
            need = "need at least one; check the chat template and the tokenizer"
            raise DataError(
                f"{row.where}: the prompt became 0 tokens (rendered text: {shown(text)}); {need}"
            )
    return [array("i", ids) for ids in encoded]


def render(row: PromptRow, tokenizer: Any, template_kwargs: Mapping[str, Any]) -> str:
    """Return the text that the policy reads. A last assistant turn is continued. Any other turn is
    followed by the generation prompt."""
    name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
    if not getattr(tokenizer, "chat_template", None):
        if row.plain_text:
            return row.messages[0]["content"]
        raise DataError(
            f"{row.where}: saw chat messages, but the tokenizer ({name}) has no chat"
            " template; need one, or plain-string prompts; give a template in"
            " actor_rollout_ref.model.custom_chat_template or use an instruction-tuned model's"
            " tokenizer"
        )
    continued = row.messages[-1]["role"] == "assistant"
    settings = {
        "add_generation_prompt": not continued,
        "continue_final_message": continued,
        **template_kwargs,
    }
    messages = list(map(dict, row.messages))
    try:
        return tokenizer.apply_chat_template(messages, tokenize=False, **settings)
    except (TemplateError, ValueError, TypeError, KeyError) as error:
        roles = ", ".join(message["role"] for message in row.messages)
        raise DataError(
            f"{row.where}: the chat template of the tokenizer ({name}) refused messages"
            f" with the roles {roles}: {type(error).__name__}: {error}; change the row,"
            f" data.apply_chat_template_kwargs (now {dict(template_kwargs)}) or"
            " actor_rollout_ref.model.custom_chat_template"
        ) from error


def truncate(ids: Tokens, limit: int, mode: str) -> Tokens:
    """Return at most `limit` tokens: left keeps the end, right the start, middle limit // 2 tokens
    from the start and the rest from the end."""
    if len(ids) <= limit:
        return ids
    if mode == "left":
        return ids[-limit:]
    if mode == "right":
        return ids[:limit]
    assert mode == "middle", mode
    head = limit // 2
    return ids[:head] + ids[head - limit :]


def check_length_settings(config: DataConfig) -> None:
    """Raise ConfigError where data.truncation or data.max_prompt_length cannot work."""
    problems: list[str] = []
    if config.truncation not in TRUNCATIONS:
        problems.append(
            "data.truncation: nothing named"
            f" '{config.truncation}'{did_you_mean(config.truncation, TRUNCATIONS)}"
        )
    if config.max_prompt_length < 1:
        problems.append(
            f"data.max_prompt_length={config.max_prompt_length}; need at least 1 token, e.g."
            " data.max_prompt_length=512"
        )
    if problems:
        raise ConfigError(problems)


def fit_lengths(
    rows: Sequence[PromptRow], token_ids: Sequence[Tokens], config: DataConfig
) -> LengthReport:
    """Drop, cut or refuse prompts longer than data.max_prompt_length, by data.truncation and
    data.filter_overlong_prompts. Raises DataError in mode "error"."""
    check_length_settings(config)
    limit = config.max_prompt_length
    lengths = np.fromiter(map(len, token_ids), np.int64, len(token_ids))
    overlong = np.flatnonzero(lengths > limit).tolist()
    if config.filter_overlong_prompts:
        kept = np.flatnonzero(lengths <= limit).tolist()
        kept_ids = [token_ids[i] for i in kept]
        return LengthReport(kept=kept, token_ids=kept_ids, dropped=len(overlong), cut=0)
    if overlong and config.truncation == "error":
        listed = overlong[:_LISTED_OVERLONG]
        places = "\n".join(f"- {rows[i].where}: {lengths[i]} tokens" for i in listed)
        longest = lengths.max()
        raise DataError(
            f"{len(overlong)} prompts are longer than data.max_prompt_length={limit} tokens (the"
            f" longest has {longest}):\n{places}\nRaise the limit"
            f" (data.max_prompt_length={longest}), drop such prompts"
            " (data.filter_overlong_prompts=True) or cut them (data.truncation=left, right or"
            " middle)."
        )
    cut = [truncate(ids, limit, config.truncation) for ids in token_ids]
    return LengthReport(kept=list(range(len(rows))), token_ids=cut, dropped=0, cut=len(overlong))
