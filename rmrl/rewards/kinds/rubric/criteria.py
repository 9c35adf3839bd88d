"""One criterion of a rubric, and the fields of an entry that states one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rmrl.config.numbers import is_number

NO_YES: tuple[tuple[str, float], ...] = (("No", 0.0), ("Yes", 1.0))
_SHOWN = 60
"""Characters of a criterion's text in messages."""


class CriteriaError(ValueError):
    """Criteria that cannot be read. The text is a sentence that names the entry."""

    def __init__(self, sentence: str) -> None:
        # Halves of letters in a quoted entry would keep the sentence out of every file.
        super().__init__(sentence.encode(errors="backslashreplace").decode())


class NoCriteriaError(CriteriaError):
    """An empty list, or an empty text, in the place of criteria."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """What a response is judged by. Its value is from 0 (does not hold) to 1 (holds)."""

    text: str
    weight: float = 1.0
    """Below 0: the criterion names a fault."""
    choices: tuple[tuple[str, float], ...] = NO_YES
    """Answers of the judge in the order in which it reads them, from not at all to fully, each with
    its value from 0 to 1."""
    name: str = ""
    tags: tuple[str, ...] = ()
    must_have: bool = False
    """A response that fails it scores at most 0, and dropout never leaves it out."""
    optional: bool = False
    """A response may fail it under `all_pass`."""

    @property
    def yes_or_no(self) -> bool:
        """Whether the answers are No and Yes, in any order and spelling."""
        return sorted(text.lower() for text, _ in self.choices) == ["no", "yes"]

    def passes(self, value: float, at: float) -> bool:
        """Whether a response of this value is good in this respect: the criterion holds (`value` is
        at least `at`), or does not, where it names a fault."""
        return (value >= at) == (self.weight >= 0)

    def shown(self, number: int) -> str:
        """The criterion in messages; `number` counts from 1."""
        text = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}..."
        return f"criterion {number} ({text!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judge's verdict on one criterion."""

    number: int
    """Place of the criterion among those of its row, counted from 1."""
    criterion: Criterion
    value: float
    """From 0 (does not hold) to 1 (holds)."""
    passed: bool
    shares: Mapping[str, float]
    """Answer -> its probability among all answers."""
    mass: float = 1.0
    """Probability that the judge gives any answer at all."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry in a list of criteria, read field by field. A null counts as an absent field: tables
    fill up the fields of other rows with it. Every method raises CriteriaError."""

    fields: Mapping[str, Any]
    where: str
    """Its place, for messages."""
    key: str = ""
    """Field of an object under which the list stood. "": the list stood alone."""

    def text(self, *names: str, default: str | None = None) -> str:
        """The first of these fields that holds text; `default` where none does (None: it must)."""
        for name in names:
            value = self.fields.get(name)
            if isinstance(value, str) and value.strip():
                return self._whole(value.strip(), name)
            if value is not None and not isinstance(value, str):
                raise CriteriaError(f"{self.where}.{name}={value!r}: give text")
        if default is not None:
            return default
        listed = ", ".join(map(str, self.fields)) or "(none)"
        raise CriteriaError(
            f"{self.where}: no text in {' or '.join(names)} (its fields: {listed}); state the"
            " criterion there"
        )

    def number(self, name: str, default: float) -> float:
        """A finite number."""
        value = self.fields.get(name)
        if value is None:
            return default
        if not is_number(value):
            raise CriteriaError(f"{self.where}.{name}={value!r}: give a finite number")
        return float(value)

    def flag(self, name: str) -> bool:
        """True or False, False where the field is absent."""
        value = self.fields.get(name)
        if value is not None and not isinstance(value, bool):
            raise CriteriaError(f"{self.where}.{name}={value!r}: give true or false")
        return bool(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, () where the field is absent."""
        values = _plain(self.fields.get(name))
        if values is None:
            return ()
        if not isinstance(values, list | tuple) or not all(isinstance(v, str) for v in values):
            raise CriteriaError(f"{self.where}.{name}={values!r}: give a list of texts")
        return tuple(self._whole(value, name) for value in values)

    def choices(
        self, name: str, default: tuple[tuple[str, float], ...] = NO_YES
    ) -> tuple[tuple[str, float], ...]:
        """Answers from the worst, which is worth 0, to the best, which is worth 1, those between
        evenly spaced; or a mapping of answers to their values, from 0 to 1, in any order.

        Those of a mapping are returned by rising value, since the judge is told that they go from
        not at all to fully; where No is worth more than Yes, by falling value.
        """
        where = f"{self.where}.{name}"
        values = _plain(self.fields.get(name))
        if values is None:
            return default
        if isinstance(values, Mapping):
            # A table fills up the answers of other rows with nulls.
            pairs = [(text, value) for text, value in values.items() if value is not None]
        elif isinstance(values, list | tuple):
            last = max(len(values) - 1, 1)
            pairs = [(text, place / last) for place, text in enumerate(values)]
        else:
            raise CriteriaError(f"{where}={values!r}: give answers from the worst to the best")
        for text, value in pairs:
            if not isinstance(text, str) or not text.strip():
                raise CriteriaError(
                    f"{where}: {text!r} is no text; quote the answer, as YAML reads a bare Yes as a"
                    " truth value and 1 as a number"
                )
            if not is_number(value) or not 0 <= value <= 1:
                raise CriteriaError(f"{where}.{text}={value!r}: give a number from 0 to 1")
        if len({text.strip() for text, _ in pairs}) < max(len(pairs), 2):
            raise CriteriaError(f"{where}={values!r}: give at least two answers, all different")
        answers = [(self._whole(text.strip(), name), float(value)) for text, value in pairs]
        if isinstance(values, Mapping):
            by_word = {text.lower(): value for text, value in answers}
            turned = by_word.get("no", 0.0) > by_word.get("yes", 1.0)
            answers.sort(key=lambda answer: answer[1], reverse=turned)
        return tuple(answers)

    def _whole(self, text: str, name: str) -> str:
        """The text of a field, which must have no half of a letter: JSON's escapes, as in
        "\\ud83d", can hold one."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise CriteriaError(
                f"{self.where}.{name}: {text[:80]!r} has half of a letter, a lone surrogate at"
                f" {error.start}, which no tokenizer and no file takes; correct the text"
            ) from error
        return text


def _plain(value: Any) -> Any:
    """A value without the array type that some tables have."""
    return value.tolist() if hasattr(value, "tolist") else value
