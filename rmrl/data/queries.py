"""Responses in queries: texts that have a prompt, its response and both's special tokens, as
OpenRLHF sends them."""

from __future__ import annotations

MOST_BEFORE = 64
"""Characters of marks that may stand before the prompt in a query."""
LEAST_OVERLAP = 32
"""Characters that the end of a prompt and the begin of a query must share where the whole prompt is
not in the query."""
END_MARKS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)
"""Texts of special tokens that end a response."""
OPENINGS = {"</s>": "<s>", "<|im_end|>": "<|im_start|>", "<end_of_turn>": "<start_of_turn>"}
"""Mark of an end -> the text that it closes where both stand in a response."""


def response_of(query: str, prompt: str) -> str | None:
    """Cut the response from a query.

    It begins behind the prompt: at the query's start, or behind a mark that the tokenizer put
    before it. OpenRLHF cuts long prompts at their start. Then the prompt's longest end with which
    the query begins counts, if it has LEAST_OVERLAP characters. Returns None where neither is so.
    The special tokens that end the response are left out. A mark that closes an opening (OPENINGS)
    in the response belongs to its text.
    """
    start = query.find(prompt, 0, len(prompt) + MOST_BEFORE)
    if start >= 0:
        begin = start + len(prompt)
    else:
        begin = _overlap(prompt, query[: len(prompt)])
        if begin < LEAST_OVERLAP:
            return None
    return _without_end_marks(query[begin:])


def _without_end_marks(response: str) -> str:
    unopened: dict[str, int] = {
        mark: response.count(mark) - response.count(opening) for mark, opening in OPENINGS.items()
    }
    end = len(response)
    while True:
        tail = end
        while tail and response[tail - 1].isspace():
            tail -= 1
        mark = next((each for each in END_MARKS if response.endswith(each, 0, tail)), "")
        if not mark or unopened.get(mark, 1) <= 0:
            return response[:end]
        if mark in unopened:
            unopened[mark] -= 1
        end = tail - len(mark)


def _overlap(prompt: str, query: str) -> int:
    """How long `prompt`'s longest end is with which `query` begins, in linear time (the prefix
    function of Knuth, Morris and Pratt)."""
    borders = [0] * len(query)
    for place in range(1, len(query)):
        length = borders[place - 1]
        while length and query[place] != query[length]:
            length = borders[length - 1]
        if query[place] == query[length]:
            length += 1
        borders[place] = length
    matched = 0
    for character in prompt:
        while matched and (matched == len(query) or query[matched] != character):
            matched = borders[matched - 1]
        if query and query[matched] == character:
            matched += 1
    return matched
