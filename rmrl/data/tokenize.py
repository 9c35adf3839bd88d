"""PromptRow -> token ids: chat template, length filter, truncation.

A tokenizer without a chat template (a base model) takes plain-string prompts as they are; chat messages then are an error.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from jinja2.exceptions import TemplateError

from rmrl.config.schema.data import DataConfig
from rmrl.data.problems import shown
from rmrl.data.schema import PromptRow
from rmrl.errors import ConfigError, DataError, InfrastructureError, StallError
from rmrl.registry import did_you_mean

TRUNCATIONS = ("error", "left", "right", "middle")
CHUNK_ROWS = 512
CHUNK_DEADLINE_S = 600.0
"""Longest wait for one chunk of a worker process, its start included."""
_SHOWN_OVERLONG = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthReport:
    """What `fit_lengths` did, in rows and tokens."""

    kept: list[int]
    """Positions of the rows that stay."""
    token_ids: list[list[int]]
    """Their tokens, each at most data.max_prompt_length."""
    dropped: int
    cut: int


def encode_rows(rows: Sequence[PromptRow], tokenizer: Any, *, template_kwargs: Mapping[str, Any], workers: int = 1) -> list[list[int]]:
    """Token ids of every row, generation prompt included, before truncation.

    With `workers` > 1 and enough rows, that many processes do it; the result is the same. Raises DataError where the chat template
    is missing, refuses a row or renders nothing, StallError / InfrastructureError where a worker hangs or dies.
    """
    if workers < 1:
        raise ConfigError(f"data.filter_overlong_prompts_workers={workers}; need 1 or more processes")
    chunks = [rows[start : start + CHUNK_ROWS] for start in range(0, len(rows), CHUNK_ROWS)]
    if workers == 1 or len(chunks) < 2:
        return [ids for chunk in chunks for ids in encode_chunk(chunk, tokenizer, template_kwargs)]
    return [ids for part in _encode_in_processes(chunks, (tokenizer, dict(template_kwargs)), min(workers, len(chunks))) for ids in part]


def encode_chunk(rows: Sequence[PromptRow], tokenizer: Any, template_kwargs: Mapping[str, Any]) -> list[list[int]]:
    """`encode_rows` for a few rows, in this process."""
    if not rows:
        return []
    chat = bool(getattr(tokenizer, "chat_template", None))
    texts = [render(row, tokenizer, template_kwargs) for row in rows]
    # A chat template writes the special tokens itself; a bare text needs those the tokenizer adds (such as BOS).
    encoded = tokenizer(texts, add_special_tokens=not chat, return_attention_mask=False, verbose=False)["input_ids"]
    for row, text, ids in zip(rows, texts, encoded, strict=True):
        if not len(ids):
            need = "need at least one; check the chat template and the tokenizer"
            raise DataError(f"{row.where}: the prompt became 0 tokens (rendered text: {shown(text)}); {need}")
    return [list(ids) for ids in encoded]


def render(row: PromptRow, tokenizer: Any, template_kwargs: Mapping[str, Any]) -> str:
    """The text the policy reads. A last assistant turn is continued, any other gets the generation prompt."""
    if not getattr(tokenizer, "chat_template", None):
        if row.plain_text:
            return row.messages[0]["content"]
        raise DataError(
            f"{row.where}: saw chat messages, but the tokenizer ({_name(tokenizer)}) has no chat template; need one, or plain-string "
            "prompts; give a template in actor_rollout_ref.model.custom_chat_template or use an instruction-tuned model's tokenizer"
        )
    continued = row.messages[-1]["role"] == "assistant"
    settings = {"add_generation_prompt": not continued, "continue_final_message": continued, **template_kwargs}
    try:
        return tokenizer.apply_chat_template([dict(m) for m in row.messages], tokenize=False, **settings)
    except (TemplateError, ValueError, TypeError, KeyError) as error:
        roles = ", ".join(m["role"] for m in row.messages)
        raise DataError(
            f"{row.where}: the chat template of the tokenizer ({_name(tokenizer)}) refused messages with the roles {roles}: "
            f"{type(error).__name__}: {error}; change the row, data.apply_chat_template_kwargs "
            f"(now {dict(template_kwargs)}) or actor_rollout_ref.model.custom_chat_template"
        ) from error


def truncate(token_ids: Sequence[int], limit: int, mode: str) -> list[int]:
    """At most `limit` tokens: left keeps the end, right the start, middle limit // 2 of the start and the rest from the end."""
    ids = list(token_ids)
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
        problems.append(f"data.truncation: nothing named '{config.truncation}'{did_you_mean(config.truncation, TRUNCATIONS)}")
    if config.max_prompt_length < 1:
        problems.append(f"data.max_prompt_length={config.max_prompt_length}; need at least 1 token, e.g. data.max_prompt_length=512")
    if problems:
        raise ConfigError(problems)


def fit_lengths(rows: Sequence[PromptRow], token_ids: Sequence[list[int]], config: DataConfig) -> LengthReport:
    """Drop, cut or refuse prompts longer than data.max_prompt_length, as the configuration says. Raises DataError in mode "error"."""
    check_length_settings(config)
    limit = config.max_prompt_length
    overlong = [i for i, ids in enumerate(token_ids) if len(ids) > limit]
    if config.filter_overlong_prompts:
        gone = set(overlong)
        kept = [i for i in range(len(rows)) if i not in gone]
        return LengthReport(kept=kept, token_ids=[token_ids[i] for i in kept], dropped=len(overlong), cut=0)
    if overlong and config.truncation == "error":
        raise DataError(_overlong_message([(rows[i].where, len(token_ids[i])) for i in overlong], limit))
    cut = [truncate(ids, limit, config.truncation) for ids in token_ids]
    return LengthReport(kept=list(range(len(rows))), token_ids=cut, dropped=0, cut=len(overlong))


def _overlong_message(overlong: Sequence[tuple[str, int]], limit: int) -> str:
    named = "\n".join(f"- {where}: {length} tokens" for where, length in overlong[:_SHOWN_OVERLONG])
    longest = max(length for _, length in overlong)
    return (
        f"{len(overlong)} prompts are longer than data.max_prompt_length={limit} tokens (the longest has {longest}):\n{named}\n"
        f"Raise the limit (data.max_prompt_length={longest}), drop such prompts (data.filter_overlong_prompts=True) "
        "or cut them (data.truncation=left, right or middle)."
    )


def _name(tokenizer: Any) -> str:
    return getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__


_worker: tuple[Any, dict[str, Any]] | None = None


def _start_worker(job: tuple[Any, dict[str, Any]]) -> None:
    global _worker
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # processes times threads would oversubscribe the cores
    _worker = job


def _encode_in_worker(rows: Sequence[PromptRow]) -> list[list[int]]:
    assert _worker is not None
    return encode_chunk(rows, *_worker)


def _encode_in_processes(chunks: Sequence[Sequence[PromptRow]], job: tuple[Any, dict[str, Any]], workers: int) -> Iterator[list[list[int]]]:
    # spawn: a fork would copy locks held by torch's and Ray's threads.
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(job,))
    futures = [pool.submit(_encode_in_worker, chunk) for chunk in chunks]
    mine = set(multiprocessing.active_children()) - others
    try:
        for future in futures:
            yield _result(future)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in mine:
            process.kill()
            process.join(timeout=10)


def _result(future: Future[list[list[int]]]) -> list[list[int]]:
    advice = "use data.filter_overlong_prompts_workers=1 to tokenize in one process"
    try:
        return future.result(timeout=CHUNK_DEADLINE_S)
    except TimeoutError as error:
        raise StallError(f"a tokenizing process gave nothing for {CHUNK_DEADLINE_S:.0f} s; {advice}") from error
    except BrokenProcessPool as error:
        raise InfrastructureError(f"a tokenizing process died (killed, or out of memory); {advice}") from error
