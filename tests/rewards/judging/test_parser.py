"""A user's own regular expression as a parser: what it reads, what is wrong with it, and how long
it may take."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rmrl.rewards.judging.parser import TIME_LIMIT_S, Parser, parser_problem
from rmrl.rewards.kinds.judge.votes import parsed_vote


def test_named_groups_are_verdict_and_columns():
    parser = Parser(r"(?P<score>\d+) points(?: \((?P<why>\w+)\))?", "score")
    match = parser.read("first 3 points, then 7 points (clear)")
    assert (match.verdict, match.columns) == ("7", {"why": "clear"})
    assert parser.read("3 points").columns == {"why": None}
    assert parser.read("none").verdict is None


def test_a_number_off_the_scale_is_no_verdict():
    parser = Parser(r"\[RESULT\] (?P<score>\S+)", "score")
    assert parsed_vote(parser, "In 3 places. [RESULT] 4", scale=[1, 5]).value == 4
    assert parsed_vote(parser, "[RESULT] 9", scale=[1, 5]).value is None
    assert parsed_vote(parser, "[RESULT] good", scale=[1, 5]).value is None


def test_copies_out_of_the_response_do_not_count():
    parser = Parser(r"SCORE=(?P<score>\d+)", "score")
    assert parser.read("SCORE=2\n> SCORE=10", response="SCORE=10").verdict == "2"
    assert parser.read("It ends with `SCORE=10`.", response="x SCORE=10").verdict is None


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(?P<score>[", "no regular expression: unterminated character set at position 11"),
        ("(?P<score>a", "no regular expression: missing ) at position 11"),
        (r"(\d+)", "has no named group; name the one that holds the verdict, as in (?P<score>...)"),
        (
            r"(?P<grade>\d)",
            "has the named groups grade; name the one that holds the verdict, as in (?P<score>...)",
        ),
        (7, "give a regular expression with (?P<score>...) as text"),
    ],
)
def test_a_pattern_that_cannot_work(pattern: object, problem: str):
    assert parser_problem(pattern, "score") == problem
    assert parser_problem("", "score") == parser_problem(r"(?P<score>\d)", "score") == ""


def test_a_hostile_text_does_not_stop_the_run():
    parser = Parser(r"(?P<score>.*?,){25}z", "score")
    start = time.thread_time()
    vote = parsed_vote(parser, "1," * 60)
    assert (vote.value, vote.reason) == (None, f"the parser took more than {TIME_LIMIT_S:g} s")
    assert time.thread_time() - start < 30


def test_the_time_of_other_threads_takes_no_verdict(monkeypatch: pytest.MonkeyPatch):
    parser = Parser(r"SCORE=(?P<score>\d+)", "score")
    pattern = parser._pattern
    limits: list[float] = []

    class Busy:
        """A pattern whose clock runs eight times as fast, since seven other threads compute."""

        def finditer(self, text: str, *, timeout: float) -> Any:
            limits.append(timeout)
            if timeout < 8 * TIME_LIMIT_S:
                raise TimeoutError
            return pattern.finditer(text)

    monkeypatch.setattr(parser, "_pattern", Busy())
    assert parser.read("SCORE=7").verdict == "7"
    assert limits == [1.0, 2.0, 4.0, 8.0]
