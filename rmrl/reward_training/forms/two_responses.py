"""Two responses in columns of their own, and a verdict which one is better.

context, response1, response2, overall_preference       HelpSteer3: -3 to 3, the first's below 0
prompt, response_1, response_2, preference_strength     HelpSteer2, as HelpSteer3
prompt, response_a, response_b, label                   as `rmrl eval` reads them: A, B or tie
instruction, output_1, output_2, label                  LLMBar: the same, there 1 or 2
prompt, response_0, response_1, better_response_id      PKU-SafeRLHF: 0 or 1
history, human_ref_A, human_ref_B, labels               SHP: 1 where the first is better, else 0

How much better it is has no effect: give a `margin` to the form `pairs` for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.pairs import PAIR_LABELS
from rmrl.reward_training.example import Example
from rmrl.reward_training.forms.form import Form, prompt_of, response_of, source_of

_FIRST = (0, 1)
_SECOND = (1, 0)
_TIE = (0, 0)
_STRENGTHS = {-3: _FIRST, -2: _FIRST, -1: _FIRST, 0: _TIE, 1: _SECOND, 2: _SECOND, 3: _SECOND}
_RANKS = {frozenset({0}): _FIRST, frozenset({1}): _SECOND, frozenset[int](): _TIE}
_LABELS = {label: _RANKS[good] for label, good in PAIR_LABELS.items()}


class _Layout(NamedTuple):
    """Names of four columns, and each verdict's meaning: both responses' ranks."""

    prompt: str
    first: str
    second: str
    verdict: str
    ranks: Mapping[Any, tuple[int, int]]


_LAYOUTS = (
    _Layout("context", "response1", "response2", "overall_preference", _STRENGTHS),
    _Layout("prompt", "response_1", "response_2", "preference_strength", _STRENGTHS),
    _Layout("prompt", "response_a", "response_b", "label", _LABELS),
    _Layout("instruction", "output_1", "output_2", "label", _LABELS),
    _Layout("prompt", "response_0", "response_1", "better_response_id", {0: _FIRST, 1: _SECOND}),
    _Layout("history", "human_ref_A", "human_ref_B", "labels", {1: _FIRST, 0: _SECOND}),
)


class TwoResponses(Form):
    """The better one comes first; the first one where they are equally good."""

    columns: ClassVar[tuple[tuple[str, ...], ...]] = tuple(layout[:4] for layout in _LAYOUTS)

    def example(self, row: Fields) -> Example:
        """Return both responses with their ranks. Raises DataError for another verdict."""
        layout = max(_LAYOUTS, key=lambda each: sum(row.get(name) is not None for name in each[:4]))
        prompt = prompt_of(row, layout.prompt)
        names = (layout.first, layout.second)
        responses = [response_of(row, name, row.need(name), prompt) for name in names]
        ranks = row.one_of(layout.verdict, layout.ranks)
        best = ranks.index(0)
        return Example(
            place=row.place,
            prompt=prompt,
            responses=(responses[best], responses[1 - best]),
            source=source_of(row),
            ranks=tuple(sorted(ranks)),
        )
