"""Cut inputs that do not fit the model's context: entry `overlong` of a reward.

    missing           nothing is left out: the response has no verdict (status overlong)
    truncate_right    the texts lose their end
    truncate_left     the texts lose their beginning
    truncate_middle   the texts keep half of what fits from their beginning, the rest from their end

Tool results in a conversation lose their middle before all else, whichever the way. Only the
judged texts (prompt and responses) are cut, and only in inputs that do not fit. They are
cut before they are rendered: the chat template, special tokens, fences and the judge's question
stay whole, and a drop-in's rm_preprocess is called again with the shorter texts. Longer texts lose
first, token by token, until the rest fits: for a pair this is `truncation="longest_first"` of
Hugging Face tokenizers. An input whose frame leaves no room for a token of each text stays as it
was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rmrl.rewards.kinds.shared.context import Counts
from rmrl.rewards.kinds.shared.rendering import Rendered
from rmrl.rewards.kinds.shared.token_pieces import Passage, Pieces, shares
from rmrl.rewards.kinds.shared.tool_results import with_shorter_results
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Sampling, ScoreItem, ScoreResult

WAYS = ("missing", "truncate_left", "truncate_right", "truncate_middle")
MARK = "[... text left out here ...]"
"""Text that a judge reads where a text was cut."""
TOKENS = "truncated_tokens"
"""The column of a result with the number of tokens that were left out."""
_MOST_ROUNDS = 24

Case = TypeVar("Case")
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Maximum length of an input, and the way it is cut to it."""

    how: str
    """One of WAYS, but missing."""
    tokens: int
    """Maximum of a rendered input."""
    tokenizer: Any
    mark: str = ""
    """Text put where a text was cut."""


@dataclass(frozen=True, kw_only=True)
class Cutting(Generic[Case, Read]):
    """Operations of `fitted` on the cases it cuts."""

    passages: Callable[[Case], list[Passage]]
    rebuilt: Callable[[Case, list[Passage]], Case]
    render: Callable[[Sequence[int], Sequence[Case]], Sequence[Read]]
    """(positions among all cases, the cases there) -> the model's input for each."""
    length: Callable[[Read], int]
    """Number of tokens."""


@dataclass(slots=True)
class _Search:
    """A case that does not fit yet; `keep` is the number of tokens in all its passages to try
    next."""

    position: int
    pieces: list[Pieces]
    keep: int


def pooling_limit(spec: RewardSpec, tokenizer: Any, *, role: str = "main") -> Limit | None:
    """Limit of a model that generates nothing: its context. None where nothing is to be cut."""
    if spec.overlong == "missing":
        return None
    return Limit(how=spec.overlong, tokens=spec.engines[role].context_length(), tokenizer=tokenizer)


def judge_limit(spec: RewardSpec, tokenizer: Any, sampling: Sampling) -> Limit | None:
    """Limit of a model that generates: its context less sampling.max_tokens (at most half the
    context). None where nothing is to be cut."""
    if spec.overlong == "missing":
        return None
    context = spec.engines["main"].context_length()
    room = min(sampling.max_tokens, context // 2)
    return Limit(how=spec.overlong, tokens=context - room, tokenizer=tokenizer, mark=MARK)


def fitted(
    cases: Sequence[Case],
    cutting: Cutting[Case, Read],
    limit: Limit | None,
    *,
    reads: Sequence[Read] | None = None,
) -> list[tuple[Read, int]]:
    """(the model's input, tokens left out of it) of each case. `limit` None: nothing is cut.
    `reads`: the inputs of the whole cases, where they are rendered already."""
    if not cases:
        return []
    if reads is None:
        reads = cutting.render(range(len(cases)), cases)
    reads = list(reads)
    left_out = [0] * len(reads)
    if limit is None:
        return list(zip(reads, left_out, strict=True))
    full = list(map(cutting.length, reads))
    pending: list[_Search] = []
    for position, length in enumerate(full):
        if length > limit.tokens:
            pieces: list[Pieces] = []
            total = 0
            for passage in cutting.passages(cases[position]):
                pieces.append(Pieces.of(passage, limit.tokenizer))
                total += len(pieces[-1].spans)
            search = _Search(position, pieces, total)
            search.keep = _less(search, length - limit.tokens)
            pending.append(search)
    for _ in range(_MOST_ROUNDS):
        if not pending:
            break
        positions = [search.position for search in pending]
        shorter: list[Case] = []
        for search in pending:
            counts = shares([len(piece.spans) for piece in search.pieces], search.keep)
            passages: list[Passage] = [
                piece.cut(count, how=limit.how, mark=limit.mark)
                for piece, count in zip(search.pieces, counts, strict=True)
            ]
            shorter.append(cutting.rebuilt(cases[search.position], passages))
        unfinished: list[_Search] = []
        for search, read in zip(pending, cutting.render(positions, shorter), strict=True):
            over = cutting.length(read) - limit.tokens
            if over <= 0:
                reads[search.position] = read
                left_out[search.position] = full[search.position] - cutting.length(read)
            elif search.keep > len(search.pieces):
                search.keep = _less(search, over)
                unfinished.append(search)
        pending = unfinished
    return list(zip(reads, left_out, strict=True))


def item_passages(items: Sequence[ScoreItem]) -> list[Passage]:
    """The prompt of the first item, and the response of each: the texts a judge reads."""
    prompt = items[0].rm_prompt
    passages: list[Passage] = []
    if isinstance(prompt, str):
        passages.append([prompt])
    else:
        passages.append([turn["content"] for turn in prompt])
    for item in items:
        passages.append([item.response])
    return passages


def items_rebuilt(items: Sequence[ScoreItem], passages: Sequence[Passage]) -> tuple[ScoreItem, ...]:
    """The items with other texts, in the order of `item_passages`."""
    turns, *responses = passages
    prompt = items[0].rm_prompt
    shorter: Any = turns[0]
    if not isinstance(prompt, str):
        shorter = [{**turn, "content": text} for turn, text in zip(prompt, turns, strict=True)]
    rebuilt: list[ScoreItem] = [
        dataclasses.replace(item, rm_prompt=shorter, response=text)
        for item, (text,) in zip(items, responses, strict=True)
    ]
    return tuple(rebuilt)


def fit_items(
    items: Sequence[ScoreItem],
    render: Callable[[Sequence[int], Sequence[ScoreItem]], Sequence[Rendered]],
    limit: Limit | None,
    *,
    reads: Sequence[Rendered] | None = None,
) -> list[Rendered]:
    """`fitted` for kinds that read one response at a time; arguments of `render`: positions, and
    the items there."""
    if reads is not None and limit is None:
        return list(reads)
    if limit is not None and any(item.tool_results for item in items):
        return _fit_results(items, render, limit, reads=reads)
    cutting = Cutting[tuple[ScoreItem, ...], Rendered](
        passages=item_passages,
        rebuilt=items_rebuilt,
        render=lambda positions, cases: render(positions, [case[0] for case in cases]),
        length=lambda read: len(read.token_ids),
    )
    rendered: list[Rendered] = []
    for read, tokens in fitted([(item,) for item in items], cutting, limit, reads=reads):
        if tokens:
            read = dataclasses.replace(read, left_out=tokens)
        rendered.append(read)
    return rendered


def _fit_results(
    items: Sequence[ScoreItem],
    render: Callable[[Sequence[int], Sequence[ScoreItem]], Sequence[Rendered]],
    limit: Limit,
    *,
    reads: Sequence[Rendered] | None,
) -> list[Rendered]:
    """`fit_items` where some items have tool results, which are cut before all else."""
    shorter = list(items)
    whole = list(reads or render(range(len(items)), items))
    rendered = list(whole)
    original = [len(read.token_ids) for read in whole]
    for i, item in enumerate(items):
        over = original[i] - limit.tokens
        if over > 0 and item.tool_results:
            shorter[i] = with_shorter_results(
                item, over, tokenizer=limit.tokenizer, mark=limit.mark
            )
            (rendered[i],) = render([i], [shorter[i]])
    plain = [dataclasses.replace(item, tool_results=()) for item in shorter]
    return [
        dataclasses.replace(read, left_out=length - len(read.token_ids))
        if len(read.token_ids) < length
        else read
        for read, length in zip(
            fit_items(plain, render, limit, reads=rendered), original, strict=True
        )
    ]


def with_cuts(
    results: Sequence[ScoreResult], left_out: Sequence[int], *, how: str, counts: Counts
) -> list[ScoreResult]:
    """The results with the number of tokens that were left out of their inputs.

    Logs the share of cut responses as `score/<name>/truncated`.
    """
    if how == "missing":
        return list(results)
    noted: list[ScoreResult] = []
    truncated = 0
    for result, tokens in zip(results, left_out, strict=True):
        # Where something was written, it was a further model that had no room to read it.
        if result.status == "overlong" and not tokens and not result.tokens_out:
            detail = (
                f"the input has {result.tokens_in} tokens and overlong={how} can cut nothing:"
                " what stands around the texts leaves no room for a token (of a process reward: a"
                " whole step) of each; raise engine.max_model_len"
            )
            noted.append(dataclasses.replace(result, detail=detail))
        else:
            noted.append(with_cut(result, tokens, how=how))
        truncated += TOKENS in noted[-1].extra
    counts.add("truncated", truncated, len(noted))
    return noted


def with_cut(result: ScoreResult, tokens: int, *, how: str) -> ScoreResult:
    """The result with a sentence on the tokens left out, and their number added to
    `extra.truncated_tokens`."""
    if not tokens:
        return result
    total = tokens + result.extra.get(TOKENS, 0)
    detail = result.detail
    if result.value is not None:
        detail = f"{total} tokens were left out of what the model read (overlong={how})"
    return dataclasses.replace(result, detail=detail, extra={**result.extra, TOKENS: total})


def _less(search: _Search, over: int) -> int:
    """Number of tokens to try after keeping `search.keep` was `over` too many; at least one per
    passage."""
    fewer = search.keep - over if search.keep > over else search.keep // 2
    return max(fewer, len(search.pieces))
