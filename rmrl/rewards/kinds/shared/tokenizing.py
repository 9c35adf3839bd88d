"""Token ids of a reward model's inputs, many at once: fast tokenizers work on a list of texts with
all cores and without Python's lock."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.errors import RewardFunctionError
from rmrl.rewards.dropins.dropin import describe_exception
from rmrl.rewards.dropins.verdict import RowError
from rmrl.rewards.kinds.shared.row_errors import Origin
from rmrl.rewards.kinds.shared.untrusted import Fence
from rmrl.types import Messages


class UnreadableInputError(RewardFunctionError):
    """One input that cannot be read, whatever the others are."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """One input of a reward model. `text` is for people; `token_type_ids` only for encoders that
    read pairs."""

    text: str
    token_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...] | None = None
    messages: tuple[tuple[str, str], ...] = ()
    """(role, content) of each turn, where the input is a conversation."""
    tokenized: bool = True
    """False: a server reads `messages` or `text` and tokenizes by itself."""
    fence: Fence | None = None
    """The response's fence, to clean the judge's text of."""
    left_out: int = 0
    """Tokens that were cut so that it fits (`overlong`)."""
    problem: str = ""
    """Why there is nothing to read: a sentence on the error of rm_preprocess."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read."""
        return not self.token_ids if self.tokenized else not self.text.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """A text to tokenize, or a pair of texts."""

    text: str
    second: str | None = None
    special: bool = True
    """Whether the tokenizer adds its begin and end marks."""
    messages: tuple[tuple[str, str], ...] = ()


def tokenize(read: Any, tokenizer: Any, *, generation_prompt: bool, where: str) -> Rendered:
    """One input. See `tokenize_all`."""
    return tokenize_all([read], tokenizer, generation_prompt=generation_prompt, where=where)[0]


def tokenize_all(
    reads: Sequence[Any], tokenizer: Any, *, generation_prompt: bool, where: str
) -> list[Rendered]:
    """Strings (taken as they are), token ids, messages (the chat template is applied) or (text,
    text) pairs -> token ids.

    Token ids may be a list, an array of one dimension, or what `tokenizer(text)` returns. With
    `tokenizer` None, for servers that tokenize by themselves, strings and messages are passed on.
    Raises RewardFunctionError naming `where`: UnreadableInputError at the first input that is none
    of these.
    """
    rows: list[Rendered] = []
    for row in _tokenized(reads, tokenizer, generation_prompt=generation_prompt, where=where):
        if isinstance(row, UnreadableInputError):
            raise row
        rows.append(row)
    return rows


def tokenize_chats(
    chats: Sequence[Messages], tokenizer: Any, *, where: str, **variables: Any
) -> list[Rendered]:
    """Messages -> token ids, with a generation prompt and with `variables` for the chat template,
    such as enable_thinking. Raises RewardFunctionError naming `where`."""
    texts: dict[int, _Text] = {}
    for i, chat in enumerate(chats):
        text = _templated(chat, tokenizer, True, where=where, **variables)
        texts[i] = _Text(text=text, special=False, messages=_turns(chat))
    rows = encode(texts, tokenizer)
    return [rows[i] for i in range(len(chats))]


def tokenize_rows(
    inputs: Sequence[Any],
    responses: Sequence[str | Sequence[str]],
    *,
    tokenizer: Any,
    generation_prompt: bool,
    origin: Origin,
) -> list[Rendered]:
    """`tokenize_all` of the inputs that a user's function returned for each of `responses`: an
    input that cannot be read costs its row (`Rendered.problem`)."""
    tokenized = _tokenized(
        inputs, tokenizer, generation_prompt=generation_prompt, where=origin.what
    )
    rows: list[Rendered] = []
    for row, response in zip(tokenized, responses, strict=True):
        if isinstance(row, UnreadableInputError):
            problem = f"{row} {origin.seen_on(response)}"
            row = Rendered("", (), tokenized=tokenizer is not None, problem=problem)
        rows.append(row)
    return rows


def _tokenized(
    reads: Sequence[Any], tokenizer: Any, *, generation_prompt: bool, where: str
) -> list[Rendered | UnreadableInputError]:
    """Each input tokenized, or why it cannot be read."""
    rows: list[Rendered | UnreadableInputError | None] = []
    texts: dict[int, _Text] = {}
    for i, read in enumerate(reads):
        row = None
        try:
            text = _text_of(read, tokenizer, generation_prompt=generation_prompt, where=where)
        except UnreadableInputError as error:
            text = error
        if isinstance(text, _Text):
            texts[i] = text
        else:
            row = text
        rows.append(row)
    for i, row in encode(texts, tokenizer).items():
        rows[i] = row
    return [row for row in rows if row is not None]


def tokenize_ends(
    groups: Sequence[Sequence[Any]], tokenizer: Any, *, end: str, where: str
) -> list[tuple[Rendered, ...]]:
    """`tokenize_all` (with a generation prompt) of inputs, strings or messages, that are equal up
    to their last `end` in each group. Most of each group is tokenized once.

    The first two inputs of a group are tokenized whole. Where both have the same tokens in front of
    the text's tokens from `end` on, these tokens stand in front of every other input's too: a
    tokenizer splits a text into words first, and all inputs have the same words around that place.
    Otherwise all inputs of the group are tokenized whole.
    """
    texts: list[_Text] = []
    starts: list[int] = []
    whole: dict[int, _Text] = {}
    ends: dict[int, _Text] = {}
    for group in groups:
        start = len(texts)
        starts.append(start)
        for read in group:
            text = _text_of(read, tokenizer, generation_prompt=True, where=where)
            assert isinstance(text, _Text)
            texts.append(text)
        cut = texts[start].text.rfind(end)
        head = texts[start].text[: cut + len(end)]
        shared = cut > 0 and len(group) > 2
        shared = shared and all(text.text.startswith(head) for text in texts[start:])
        for i in range(start, len(texts)):
            if not shared or i < start + 2:
                whole[i] = texts[i]
            if shared:
                ends[i] = dataclasses.replace(texts[i], text=texts[i].text[cut:], special=False)
    rows = encode(whole, tokenizer)
    tails = encode(ends, tokenizer)
    again: dict[int, _Text] = {}
    for start, group in zip(starts, groups, strict=True):
        if start not in ends:
            continue
        positions = range(start, start + len(group))
        first = rows[start].token_ids
        front = first[: len(first) - len(tails[start].token_ids)]
        equal = all(rows[i].token_ids == front + tails[i].token_ids for i in positions[:2])
        for i in positions[2:]:
            if equal:
                ids = front + tails[i].token_ids
                rows[i] = Rendered(texts[i].text, ids, messages=texts[i].messages)
            else:
                again[i] = texts[i]
    rows |= encode(again, tokenizer)
    tokenized: list[tuple[Rendered, ...]] = []
    for start, group in zip(starts, groups, strict=True):
        tokenized.append(tuple(rows[i] for i in range(start, start + len(group))))
    return tokenized


def encode(texts: Mapping[int, _Text], tokenizer: Any) -> dict[int, Rendered]:
    """The texts at their positions as token ids, with one call of the tokenizer for all of one
    form."""
    forms: dict[tuple[bool, bool], list[int]] = {}
    for i, text in texts.items():
        # An empty second text makes no pair.
        forms.setdefault((bool(text.second), text.special), []).append(i)
    rows: dict[int, Rendered] = {}
    for (paired, special), positions in forms.items():
        columns = [[texts[i].text for i in positions]]
        if paired:
            columns.append([texts[i].second or "" for i in positions])
        encoded = tokenizer(
            *columns, add_special_tokens=special, return_attention_mask=False, verbose=False
        )
        types = encoded.get("token_type_ids")
        for place, i in enumerate(positions):
            text = texts[i]
            shown = text.text
            of_pair = None
            if text.second is not None:
                shown = f"{text.text}\n---\n{text.second}"
                of_pair = None if types is None else tuple(types[place])
            ids = tuple(encoded["input_ids"][place])
            rows[i] = Rendered(shown, ids, of_pair, messages=text.messages)
    return rows


def _text_of(read: Any, tokenizer: Any, *, generation_prompt: bool, where: str) -> _Text | Rendered:
    """The text to tokenize of one input, or the input itself where it needs no tokenizing. Raises
    UnreadableInputError."""
    if isinstance(read, RowError):
        problem = f"{read.what} {read.detail}"
        return Rendered("", (), tokenized=tokenizer is not None, problem=problem)
    if tokenizer is None:
        return _untokenized(read, where)
    if isinstance(read, str):
        _check_letters(read, where)
        bos = tokenizer.bos_token
        templated = bool(bos) and read.startswith(bos)
        return _Text(text=read, special=not templated)
    if isinstance(read, tuple) and len(read) == 2 and all(isinstance(part, str) for part in read):
        first, second = read
        _check_letters(first, where)
        _check_letters(second, where)
        return _Text(text=first, second=second)
    ids = token_ids_of(read)
    if ids is not None:
        for token in (min(ids), max(ids)):
            if not 0 <= token < len(tokenizer):
                raise UnreadableInputError(
                    f"{where} returned token id {token}, and the reward model's tokenizer has"
                    f" {len(tokenizer)} tokens; tokenize with tgt_tokenizer"
                )
        return Rendered(tokenizer.decode(list(ids)), ids)
    if is_messages(read):
        text = _templated(read, tokenizer, generation_prompt, where=where)
        return _Text(text=text, special=False, messages=_turns(read))
    raise UnreadableInputError(
        f"{where} returned {repr(read)[:80]} ({type(read).__name__}) as an input; give a string,"
        " token ids, a list of {role, content} messages, or a (text, text) tuple for an encoder"
        " that reads pairs"
    )


def is_messages(read: Any) -> bool:
    """Tell whether it is a list of turns with a role and a content."""
    if not isinstance(read, Sequence) or isinstance(read, str | bytes) or not read:
        return False
    return all(isinstance(turn, Mapping) and {"role", "content"} <= set(turn) for turn in read)


def _turns(messages: Messages) -> tuple[tuple[str, str], ...]:
    return tuple((str(turn["role"]), str(turn["content"])) for turn in messages)


def _untokenized(read: Any, where: str) -> Rendered:
    if isinstance(read, str):
        return Rendered(read, (), tokenized=False)
    if is_messages(read):
        text = "\n\n".join(f"{role}: {content}" for role, content in _turns(read))
        return Rendered(text, (), messages=_turns(read), tokenized=False)
    raise UnreadableInputError(
        f"{where} returned {repr(read)[:80]} ({type(read).__name__}) as an input; a remote judge"
        " reads a string or a list of {role, content} messages"
    )


def token_ids_of(read: Any) -> tuple[int, ...] | None:
    """Whole numbers out of a list, an array or a tokenizer's output; None for anything else."""
    tokens: Any = read
    if isinstance(read, Mapping) and "input_ids" in read:
        tokens = read["input_ids"]
    if hasattr(tokens, "tolist"):
        tokens = tokens.tolist()
    if not isinstance(tokens, Sequence) or isinstance(tokens, bytes) or not tokens:
        return None
    for token in tokens:
        if isinstance(token, bool) or not isinstance(token, numbers.Integral):
            return None
    return tuple(map(int, tokens))


def _check_letters(text: str, where: str) -> None:
    """Raise UnreadableInputError for a text that cannot be written as UTF-8: JSON's escapes, as in
    "\\ud83d", can hold half a letter, which tokenizers refuse."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnreadableInputError(
            f"{where} returned a text with half of a letter, a lone surrogate at {error.start};"
            " make it text with text.encode(errors='replace').decode()"
        ) from error


def _templated(
    messages: Messages, tokenizer: Any, generation_prompt: bool, *, where: str, **variables: Any
) -> str:
    """The messages as the chat template writes them, with variables that it reads."""
    if not tokenizer.chat_template:
        raise RewardFunctionError(
            f"messages need a chat template, and the tokenizer of {tokenizer.name_or_path} has"
            " none; return strings instead"
        )
    try:
        text = tokenizer.apply_chat_template(
            list(map(dict, messages)),
            tokenize=False,
            add_generation_prompt=generation_prompt,
            **variables,
        )
    except Exception as error:
        # A template is a program of the checkpoint's own: it may raise anything.
        roles = ", ".join(str(m["role"]) for m in messages)
        raise UnreadableInputError(
            f"{where}: the chat template of {tokenizer.name_or_path} refuses messages of the roles"
            f" {roles}: {describe_exception(error)}"
        ) from error
    _check_letters(text, where)
    return text
