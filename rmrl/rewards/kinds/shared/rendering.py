"""Inputs of a reward model: from items to token ids, through a drop-in's rm_preprocess or the
kind's own default."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.inference.reward_engine_base import GenerateRequest
from rmrl.rewards.dropins.dropin import DropIn
from rmrl.rewards.dropins.verdict import Verdict
from rmrl.rewards.kinds.shared.dropin_calls import call_dropin, named_columns, origin_of
from rmrl.rewards.kinds.shared.row_errors import checked_length
from rmrl.rewards.kinds.shared.tokenizing import (
    Rendered,
    is_messages,
    token_ids_of,
    tokenize,
    tokenize_all,
    tokenize_rows,
)
from rmrl.rewards.kinds.shared.untrusted import Fence, neutraliser, new_fence
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Sampling, ScoreItem, ScoreResult

__all__ = [
    "NOTHING_TO_READ",
    "Exhibit",
    "Rendered",
    "as_judge_input",
    "checked_length",
    "exhibits",
    "fill_in",
    "generate_requests",
    "judge_inputs",
    "judge_reads",
    "nothing_to_read",
    "postprocess",
    "preprocess",
    "readable",
    "reads_all_at_once",
    "token_ids_of",
    "tokenize",
    "tokenize_all",
    "tokenize_rows",
    "tokenized",
    "with_note",
    "without_torn_fence",
    "without_verdict",
]


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A response as a reward model reads it: its special tokens broken, and fenced if so
    configured."""

    text: str
    fence: Fence
    fenced: bool


NOTHING_TO_READ = ScoreResult(
    value=None, status="user_error", detail="the reward model's input is empty: it has no token"
)


def readable(
    items: Sequence[ScoreItem], rendered: Sequence[Rendered]
) -> tuple[list[ScoreItem], list[Rendered]]:
    """The items whose inputs hold something to read, and these inputs: engines refuse empty
    ones."""
    rows: list[ScoreItem] = []
    inputs: list[Rendered] = []
    for item, read in zip(items, rendered, strict=True):
        if not read.empty:
            rows.append(item)
            inputs.append(read)
    return rows, inputs


def fill_in(rendered: Sequence[Rendered], scored: Sequence[ScoreResult]) -> list[ScoreResult]:
    """The results of all inputs, given those of the `readable` ones."""
    remaining = iter(scored)
    results: list[ScoreResult] = [
        nothing_to_read(read) if read.empty else next(remaining) for read in rendered
    ]
    return results


def nothing_to_read(read: Rendered) -> ScoreResult:
    """The result of an empty input."""
    if read.problem:
        return ScoreResult(value=None, status="user_error", detail=read.problem)
    return NOTHING_TO_READ


def without_verdict(verdict: Verdict, **columns: Any) -> ScoreResult:
    """The result where rm_postprocess returned no finite number; `columns` are further fields of
    the result."""
    if verdict.problem:
        return ScoreResult(
            value=None, status="user_error", detail=f"rm_postprocess {verdict.problem}", **columns
        )
    return ScoreResult(
        value=None, status="unparseable", detail="rm_postprocess gave no verdict", **columns
    )


def exhibits(items: Sequence[ScoreItem], tokenizer: Any, *, fenced: bool) -> list[Exhibit]:
    """The items' responses, made inert.

    `tokenizer` is that of the model that will read it, None for a server that tokenizes itself.
    """
    displayed: list[Exhibit] = []
    neutral = neutraliser(tokenizer)
    for item in items:
        text = neutral(item.response)
        salt = item.rm_prompt
        if not isinstance(salt, str):
            salt = json.dumps(list(map(dict, salt)), sort_keys=True, default=str)
        fence = new_fence(text, salt=salt)
        displayed.append(Exhibit(fence.wrap(text) if fenced else text, fence, fenced))
    return displayed


def preprocess(
    dropin: DropIn,
    items: Sequence[ScoreItem],
    tokenizer: Any,
    *,
    displayed: Sequence[Exhibit] | None = None,
) -> list[Any]:
    """rm_preprocess on all items; messages it returns get a note on their fences (`with_note`).

    `displayed`: the `exhibits` of the items. None: they are not fenced. Further arguments that
    rm_preprocess may name: `fences`, one `Fence` per response, whether or not the responses stand
    in them, and `responses`, inert and without a fence. A row on which it raises has a `RowError`
    in the place of its input. Raises RewardFunctionError when rm_preprocess returns another number
    of inputs.
    """
    if displayed is None:
        displayed = exhibits(items, tokenizer, fenced=False)
    texts: list[str] = []
    fences: list[Fence] = []
    inert: list[str] = []
    for exhibit in displayed:
        texts.append(exhibit.text)
        fences.append(exhibit.fence)
        inert.append(exhibit.fence.text)
    named = named_columns(items)
    inputs = call_dropin(
        origin_of(dropin, "rm_preprocess"),
        ([item.rm_prompt for item in items], texts),
        {**named, "fences": fences, "responses": inert},
        responses=named["responses"],
        rest=(tokenizer,),
    )
    noted: list[Any] = [
        with_note(without_torn_fence(read, exhibit), exhibit)
        for read, exhibit in zip(inputs, displayed, strict=True)
    ]
    return noted


def without_torn_fence(read: Any, exhibit: Exhibit) -> Any:
    """The input without a fence whose end a drop-in cut off, as `text[:2000]` does: all text that
    follows would stand inside it."""
    if not exhibit.fenced:
        return read
    if isinstance(read, str):
        return exhibit.fence.torn(read)
    if not is_messages(read):
        return read
    turns: list[Any] = []
    for turn in read:
        if isinstance(turn["content"], str):
            turn = {**turn, "content": exhibit.fence.torn(turn["content"])}
        turns.append(turn)
    return turns


def postprocess(
    dropin: DropIn,
    results: list[Any],
    items: Sequence[ScoreItem],
    *,
    fences: Sequence[Fence | None] | None = None,
) -> list[Any]:
    """rm_postprocess on all results, with the same checks and `RowError`s.

    `fences` may be named as in `preprocess`, and is None for scalar models.
    `responses` are as the policy wrote them: `response=` of rmrl.rewards.judging.verdicts.
    """
    named = named_columns(items)
    return call_dropin(
        origin_of(dropin, "rm_postprocess"),
        (results,),
        {**named, "fences": fences},
        responses=named["responses"],
    )


def with_note(read: Any, exhibit: Exhibit) -> Any:
    """Messages with a sentence on the fence in them; every other input unchanged.

    The sentence begins the message that holds the fence. In an earlier message its marker would
    differ between requests that share a beginning, and no engine could reuse its prefix cache.
    Besides, some templates refuse a system message.
    """
    if not exhibit.fenced or not is_messages(read):
        return read
    turns = list(map(dict, read))
    for turn in turns:
        if isinstance(turn["content"], str) and exhibit.fence.marker in turn["content"]:
            turn["content"] = f"{exhibit.fence.note()}\n\n{turn['content']}"
            break
    return turns


def as_judge_input(text: str, exhibit: Exhibit, tokenizer: Any) -> Any:
    """A shipped question as one user message, or as a plain string for a model without a chat
    template; either explains the fence."""
    if tokenizer is None or tokenizer.chat_template:
        return with_note([{"role": "user", "content": text}], exhibit)
    if exhibit.fenced:
        text = f"{exhibit.fence.note()}\n\n{text}"
    return f"{text}\n\n"


def judge_reads(
    spec: RewardSpec,
    items: Sequence[ScoreItem],
    tokenizer: Any,
    *,
    fenced: bool,
    question: Callable[[ScoreItem, str], str],
) -> list[tuple[Any, Fence]]:
    """What a language model that judges is to read of each item, and the response's fence.

    `question(item, response)` is the prompt where the reward has no rm_preprocess; `tokenizer`
    None: a server tokenizes by itself. Raises RewardFunctionError as `preprocess` does.
    """
    displayed = exhibits(items, tokenizer, fenced=fenced)
    if reads_all_at_once(spec):
        assert spec.dropin is not None
        reads = preprocess(spec.dropin, items, tokenizer, displayed=displayed)
    else:
        reads: list[Any] = [
            as_judge_input(question(item, exhibit.text), exhibit, tokenizer)
            for item, exhibit in zip(items, displayed, strict=True)
        ]
    return [(read, exhibit.fence) for read, exhibit in zip(reads, displayed, strict=True)]


def judge_inputs(
    spec: RewardSpec,
    reads: Sequence[tuple[Any, Fence]],
    items: Sequence[ScoreItem],
    tokenizer: Any,
) -> list[Rendered]:
    """The `judge_reads` of `items`, tokenized. Raises RewardFunctionError as `tokenize_all`
    does."""
    rendered = tokenized(
        spec, [read for read, _ in reads], items, tokenizer, generation_prompt=True
    )
    fenced_inputs: list[Rendered] = [
        dataclasses.replace(read, fence=fence)
        for read, (_, fence) in zip(rendered, reads, strict=True)
    ]
    return fenced_inputs


def reads_all_at_once(spec: RewardSpec) -> bool:
    """Whether an rm_preprocess makes the inputs: it may compare all responses of a batch."""
    return spec.dropin is not None and spec.dropin.preprocess is not None


def tokenized(
    spec: RewardSpec,
    reads: Sequence[Any],
    items: Sequence[ScoreItem],
    tokenizer: Any,
    *,
    generation_prompt: bool,
) -> list[Rendered]:
    """Return what rm_preprocess returned for `items`, or the kind's own inputs, as token ids."""
    if spec.dropin is None or spec.dropin.preprocess is None:
        return tokenize_all(
            reads, tokenizer, generation_prompt=generation_prompt, where=f"reward '{spec.name}'"
        )
    return tokenize_rows(
        reads,
        [item.response for item in items],
        tokenizer=tokenizer,
        generation_prompt=generation_prompt,
        origin=origin_of(spec.dropin, "rm_preprocess"),
    )


def generate_requests(rendered: Sequence[Rendered], sampling: Sampling) -> list[GenerateRequest]:
    """One request per input, with all fields that local engines and servers read."""
    requests: list[GenerateRequest] = []
    for read in rendered:
        request = GenerateRequest(
            token_ids=read.token_ids, sampling=sampling, text=read.text, messages=read.messages
        )
        requests.append(request)
    return requests
