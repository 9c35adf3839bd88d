"""Reading a judge's verdict: which choice, or which number.

In this order, the first that is there deciding:
1. marked: [[A]], \\boxed{A}, <verdict>A</verdict>, a JSON field, or nothing but the verdict;
2. a label ("Verdict: A", "Final score: 7/10"), or a first or last line that is nothing but the
  verdict;
3. a statement: "A is better", "I prefer A", "both are equally good"; of numbers "I give it a 7" and
  "7/10";
4. a lone mention: the only choice that is mentioned at all, or the only number of the scale, where
  a word of scoring leads to it. What contradicts itself on its strongest level is no verdict, nor
  is a text of the levels 3 and 4 that breaks off in mid-sentence. A verdict behind words of
  revision voids those before them. Quotations count less than the judge's own words (see
  `quotations`), thinking blocks do not count. Nothing is evaluated, and time is linear in the
  length of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from rmrl.rewards.judging.choice_levels import read_json_for_choice, read_view_for_choice
from rmrl.rewards.judging.choices import Choices
from rmrl.rewards.judging.figures import Scale
from rmrl.rewards.judging.number_levels import read_json_for_number, read_view_for_number
from rmrl.rewards.judging.quotations import QUOTES, QUOTES_IN_JSON, views
from rmrl.rewards.judging.reading import Reading, Value, ends_mid_sentence, revised_parts
from rmrl.rewards.judging.thinking import strip_thinking


def read_choice(
    text: str,
    choices: Sequence[str],
    *,
    response: str = "",
    prompt: str = "",
    cut: bool = False,
    no_preference: Literal["tie", "none"] = "tie",
) -> Reading[str]:
    """The choice that a judge made, spelt as in `choices`.

    Letters and numbers may stand with a noun or as an ordinal: of ["A", "B"], "Output (a)",
    "Assistant A", "Response 1" and "the first answer" are A. Case matters only in single letters:
    "a" is seldom a verdict. `no_preference`: what "both are equally good" and "neither is
    acceptable" count as where a tie is a choice; the word "tie" itself always is one. `cut`: the
    text was ended by its token limit. `response`: the text that was judged, so that copies out of
    it do not count; `prompt`: the rest of the judge's prompt, whose lines, repeated, do not count
    either (see `echoes`).
    """
    parsed = Choices(choices, no_preference=no_preference)
    ended = not ends_mid_sentence(strip_thinking(text)[0])

    def read(view: str, firm: bool) -> Reading[str] | None:
        return read_view_for_choice(view, parsed, cut=cut, ended=ended, firm=firm)

    return _first_reading(
        text,
        lambda view: read_json_for_choice(view, parsed),
        read,
        response=response,
        prompt=prompt,
        cut=cut,
    )


def read_number(
    text: str, low: float, high: float, *, response: str = "", prompt: str = "", cut: bool = False
) -> Reading[float]:
    """The number from `low` to `high`, both included, that a judge gave.

    Of "7/10" and "7 out of 10" the 7 counts where `high` is 10 or infinite, and else nothing. The
    scale itself ("0-10", "满分10分"), the numbers of a list's entries and, unless `high` is 100,
    percentages are no verdicts, nor is a number that the text may have computed. Labels with
    "final" or "overall" come before plain ones, and those before ones of an aspect ("Clarity
    score"), which count for the whole only where no other number stands. `cut`, `response` and
    `prompt` as in `read_choice`.
    """
    scale = Scale(low, high)
    ended = not ends_mid_sentence(strip_thinking(text)[0])

    def read(view: str, firm: bool) -> Reading[float] | None:
        return read_view_for_number(view, scale, cut=cut, ended=ended, firm=firm)

    return _first_reading(
        text,
        lambda view: read_json_for_number(view, scale),
        read,
        response=response,
        prompt=prompt,
        cut=cut,
    )


def _first_reading(
    text: str,
    read_json: Callable[[str], Reading[Value] | None],
    read: Callable[[str, bool], Reading[Value] | None],
    *,
    response: str,
    prompt: str,
    cut: bool,
) -> Reading[Value]:
    """The reading of the judge's own words; where they hold none, of ever more of the text.

    What follows words of revision, if it holds a verdict, voids what stands before them. `read`:
    reads all but JSON; its second argument leaves out weak forms.
    """
    own_words = strip_thinking(next(views(text, response, QUOTES, prompt=prompt)))[0]
    for part in revised_parts(own_words):
        reading = read(part, True)
        if reading is not None and reading.verdict is not None:
            return reading
    for view in views(text, response, QUOTES_IN_JSON, prompt=prompt):
        reading = read_json(strip_thinking(view)[0])
        if reading is not None:
            return reading
    left_open = False
    for view in views(text, response, QUOTES, prompt=prompt):
        words, left_open = strip_thinking(view)
        reading = read(words, False)
        if reading is not None:
            return reading
    return Reading(None, reason="cut off" if cut or left_open else "no verdict")
