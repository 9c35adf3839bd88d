"""Inputs that do not fit the model's context, and what of them is left out: entry `overlong` of a
reward.

    missing           nothing is left out: the response has no verdict there (status overlong)
    truncate_right    the texts lose their end
    truncate_left     the texts lose their beginning
    truncate_middle   the texts keep half of what fits from their beginning and the rest from their
      end

Cut are the texts that are judged (prompt and responses), and only in inputs that do not fit. They
are cut before they are rendered: the chat template, special tokens, fences and the judge's question
stay whole, and a drop-in's rm_preprocess is called again with the shorter texts. Longer texts lose
first, token by token, until all that is left fits: of a pair this is `truncation="longest_first"`
of Hugging Face tokenizers. An input whose frame leaves no room for a token of each text stays as it
was.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rmrl.rewards.kinds.context import Counts
from rmrl.rewards.kinds.rendering import Rendered
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Sampling, ScoreItem, ScoreResult

WAYS = ("missing", "truncate_left", "truncate_right", "truncate_middle")
MARK = "[... text left out here ...]"
"""What a judge that reads words sees where a text was cut."""
TOKENS = "truncated_tokens"
"""The column of a result with the number of tokens that were left out."""
_MOST_ROUNDS = 24

Case = TypeVar("Case")
Read = TypeVar("Read")
Passage = list[str]
"""Texts that are cut as one, such as the turns of a conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How long an input may be, and how it gets there."""

    how: str
    """One of WAYS, but missing."""
    tokens: int
    """Of a rendered input, at most."""
    tokenizer: Any
    mark: str = ""
    """Put where a text was cut."""


@dataclass(frozen=True, kw_only=True)
class Cutting(Generic[Case, Read]):
    """What `fitted` needs to know of the cases it cuts."""

    passages: Callable[[Case], list[Passage]]
    rebuilt: Callable[[Case, list[Passage]], Case]
    render: Callable[[Sequence[int], Sequence[Case]], Sequence[Read]]
    """(positions among all cases, the cases there) -> what the model reads, one each."""
    length: Callable[[Read], int]
    """Tokens."""


@dataclass(slots=True)
class _Search:
    """One case on its way to fitting; `keep` is the number of tokens of all its passages that are
    tried next."""

    position: int
    pieces: list[_Pieces]
    keep: int


def pooling_limit(spec: RewardSpec, tokenizer: Any, *, role: str = "main") -> Limit | None:
    """Room of a model that reads and writes nothing: its context. None where nothing is to be
    cut."""
    if spec.overlong == "missing":
        return None
    return Limit(how=spec.overlong, tokens=spec.engines[role].context_length(), tokenizer=tokenizer)


def judge_limit(spec: RewardSpec, tokenizer: Any, sampling: Sampling) -> Limit | None:
    """Room of a model that writes: its context less sampling.max_tokens, at most half of it. None
    where nothing is to be cut."""
    if spec.overlong == "missing":
        return None
    context = spec.engines["main"].context_length()
    room = min(sampling.max_tokens, context // 2)
    return Limit(how=spec.overlong, tokens=context - room, tokenizer=tokenizer, mark=MARK)


def fitted(
    cases: Sequence[Case], cutting: Cutting[Case, Read], limit: Limit | None
) -> list[tuple[Read, int]]:
    """(what the model reads, tokens left out of it) of each case. `limit` None: nothing is cut."""
    reads = list(cutting.render(range(len(cases)), cases)) if cases else []
    left_out = [0] * len(reads)
    if limit is None:
        return list(zip(reads, left_out, strict=True))
    full = [cutting.length(read) for read in reads]
    pending = [
        _begun(
            position, cutting.passages(cases[position]), limit, over=full[position] - limit.tokens
        )
        for position in range(len(reads))
        if full[position] > limit.tokens
    ]
    for _ in range(_MOST_ROUNDS):
        if not pending:
            break
        positions = [search.position for search in pending]
        shorter = [
            cutting.rebuilt(cases[s.position], _cut(s.pieces, s.keep, limit)) for s in pending
        ]
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
    """The prompt of the first, and the response of each: what a judge is shown of them."""
    prompt = items[0].rm_prompt
    turns = [prompt] if isinstance(prompt, str) else [turn["content"] for turn in prompt]
    return [turns, *([item.response] for item in items)]


def items_rebuilt(items: Sequence[ScoreItem], passages: Sequence[Passage]) -> tuple[ScoreItem, ...]:
    """The items with other texts, in the order of `item_passages`."""
    turns, *responses = passages
    prompt = items[0].rm_prompt
    if isinstance(prompt, str):
        shorter: Any = turns[0]
    else:
        shorter = [{**turn, "content": text} for turn, text in zip(prompt, turns, strict=True)]
    return tuple(
        dataclasses.replace(item, rm_prompt=shorter, response=text)
        for item, (text,) in zip(items, responses, strict=True)
    )


def fit_items(
    items: Sequence[ScoreItem],
    render: Callable[[Sequence[int], Sequence[ScoreItem]], Sequence[Rendered]],
    limit: Limit | None,
) -> list[Rendered]:
    """`fitted` for kinds that read one response at a time; `render` is given (positions, items
    there)."""
    cutting = Cutting[tuple[ScoreItem, ...], Rendered](
        passages=item_passages,
        rebuilt=items_rebuilt,
        render=lambda positions, cases: render(positions, [case[0] for case in cases]),
        length=lambda read: len(read.token_ids),
    )
    reads = fitted([(item,) for item in items], cutting, limit)
    return [
        dataclasses.replace(read, left_out=tokens) if tokens else read for read, tokens in reads
    ]


def with_cuts(
    results: Sequence[ScoreResult], left_out: Sequence[int], *, how: str, counts: Counts
) -> list[ScoreResult]:
    """The results, each saying how many tokens were left out of its input; counted as
    `score/<name>/truncated`, a share of responses."""
    if how == "missing":
        return list(results)
    noted = [
        _noted(result, tokens, how=how) for result, tokens in zip(results, left_out, strict=True)
    ]
    counts.add("truncated", sum(TOKENS in result.extra for result in noted), len(noted))
    return noted


def _noted(result: ScoreResult, tokens: int, *, how: str) -> ScoreResult:
    if result.status == "overlong" and not tokens:
        detail = (
            f"the input has {result.tokens_in} tokens and overlong={how} found nothing to cut: what"
            " stands around the texts leaves no room for a token (of a process reward: a whole"
            " step) of each; raise engine.max_model_len"
        )
        return dataclasses.replace(result, detail=detail)
    return with_cut(result, tokens, how=how)


def with_cut(result: ScoreResult, tokens: int, *, how: str) -> ScoreResult:
    """The result with a sentence and the number in `extra.truncated_tokens`, added to one there,
    where tokens were left out."""
    if not tokens:
        return result
    total = tokens + result.extra.get(TOKENS, 0)
    detail = f"{total} tokens were left out of what the model read (overlong={how})"
    return dataclasses.replace(
        result,
        detail=detail if result.value is not None else result.detail,
        extra={**result.extra, TOKENS: total},
    )


def shares(lengths: Sequence[int], keep: int) -> list[int]:
    """How many of `keep` tokens each text keeps: as much as the others as long as it has that much,
    the rest goes to the longest."""
    kept = [0] * len(lengths)
    left = keep
    for place, i in enumerate(sorted(range(len(lengths)), key=lambda i: lengths[i])):
        kept[i] = min(lengths[i], left // (len(lengths) - place))
        left -= kept[i]
    return kept


def kept_numbers(total: int, count: int, *, how: str) -> list[int]:
    """Which `count` of `total` things in a row stay: right keeps the first, left the last, middle
    count // 2 of the first and the rest."""
    head = {"truncate_right": count, "truncate_left": 0, "truncate_middle": count // 2}[how]
    return [*range(head), *range(total - (count - head), total)]


# --- one passage


@dataclass(frozen=True, slots=True)
class _Pieces:
    """A passage and where its tokens stand: (number of the text, start, end)."""

    texts: Passage
    spans: list[tuple[int, int, int]]


def _begun(position: int, passages: Sequence[Passage], limit: Limit, *, over: int) -> _Search:
    pieces = [_pieces(passage, limit.tokenizer) for passage in passages]
    search = _Search(position, pieces, sum(len(piece.spans) for piece in pieces))
    search.keep = _less(search, over)
    return search


def _less(search: _Search, over: int) -> int:
    """What to keep after keeping `search.keep` tokens was `over` too many; of every passage
    something is left."""
    fewer = search.keep - over if search.keep > over else search.keep // 2
    return max(fewer, len(search.pieces))


def _pieces(passage: Passage, tokenizer: Any) -> _Pieces:
    return _Pieces(
        passage,
        [
            (k, start, end)
            for k, text in enumerate(passage)
            for start, end in _spans(text, tokenizer)
        ],
    )


def _spans(text: str, tokenizer: Any) -> list[tuple[int, int]]:
    """Where the tokens of a text stand in it; words, for a tokenizer that does not know."""
    if not getattr(tokenizer, "is_fast", False):
        return [word.span() for word in re.finditer(r"\S+", text)]
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return [(int(start), int(end)) for start, end in encoded["offset_mapping"]]


def _cut(pieces: Sequence[_Pieces], keep: int, limit: Limit) -> list[Passage]:
    kept = shares([len(piece.spans) for piece in pieces], keep)
    return [_cut_passage(piece, count, limit) for piece, count in zip(pieces, kept, strict=True)]


def _cut_passage(piece: _Pieces, count: int, limit: Limit) -> Passage:
    """The texts with `count` of their tokens left."""
    total = len(piece.spans)
    if count >= total:
        return piece.texts
    kept = set(kept_numbers(total, count, how=limit.how))
    return [_cut_text(piece, k, kept, limit.mark) for k in range(len(piece.texts))]


def _cut_text(piece: _Pieces, k: int, kept: Collection[int], mark: str) -> str:
    """Text k with those of its tokens whose numbers are in `kept`; the others are one stretch."""
    text = piece.texts[k]
    own = [number for number, span in enumerate(piece.spans) if span[0] == k]
    lost = [number for number in own if number not in kept]
    if not lost:
        return text
    before = text[: piece.spans[lost[0] - 1][2]] if lost[0] > own[0] else ""
    after = text[piece.spans[lost[-1] + 1][1] :] if lost[-1] < own[-1] else ""
    return " ".join(part for part in (before, mark, after) if part)
