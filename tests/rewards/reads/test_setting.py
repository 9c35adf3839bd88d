"""The entries reads, unclosed and thinking."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.errors import ConfigError
from rmrl.rewards.reads.setting import Reads

WHERE = "reward.specs.judge"


@pytest.mark.parametrize(
    ("entries", "reads"),
    [
        ({}, Reads()),
        ({"reads": "all"}, Reads()),
        ({"reads": "answer"}, Reads(part="answer")),
        ({"reads": "answer", "unclosed": 0}, Reads(part="answer", unclosed=0)),
        ({"reads": "final", "unclosed": -0.5}, Reads(part="final", unclosed=-0.5)),
        ({"reads": "reasoning", "unclosed": "read"}, Reads(part="reasoning", unclosed="read")),
        ({"reads": "answer", "thinking": "opened"}, Reads(part="answer", opened=True)),
        ({"reads": "answer", "thinking": ["<p>", "</p>"]}, Reads(part="answer", tags=("<p>", "</p>"))),
        (
            {"reads": "answer", "thinking": {"tags": ["<p>", "</p>"], "opened": True}},
            Reads(part="answer", tags=("<p>", "</p>"), opened=True),
        ),
        ({"reads": "answer", "thinking": [" <p>\n", "</p> "]}, Reads(part="answer", tags=("<p>", "</p>"))),
        ({"reads": "transcript"}, Reads(part="transcript")),
        ({"reads": "last"}, Reads(part="last")),
        ({"reads": "tools", "per": "response"}, Reads(part="tools")),
        ({"reads": "turn:2"}, Reads(part="turn", turn=2)),
        ({"reads": "turn:-1"}, Reads(part="turn", turn=-1)),
        ({"per": "turn"}, Reads(per_turn="mean")),
        ({"reads": "answer", "per": {"turn": "min"}}, Reads(part="answer", per_turn="min")),
    ],
)  # fmt: skip
def test_entries(entries: dict[str, Any], reads: Reads):
    assert Reads.parse(entries, where=WHERE) == reads


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"reads": "anwser"}, "reward.specs.judge.reads=anwser: not a choice; did you mean 'answer'"),
        ({"reads": ["answer"]}, "not a choice"),
        ({"reads": "turn"}, "reads=turn: give the turn's number"),
        ({"reads": "turn:0"}, "reads=turn:0: give the turn's number"),
        ({"reads": "turn:x"}, "reads=turn:x: give the turn's number"),
        ({"reads": "last:2"}, "reads=last:2: not a choice"),
        ({"per": "step"}, "per=step: give response, turn, or {turn: HOW}"),
        ({"per": {"turn": "median"}}, "with one of mean, min, max, sum, last"),
        ({"reads": "last", "per": "turn"}, "per=turn has no effect"),
        ({"reads": "answer", "unclosed": "empty"}, "unclosed='empty': give missing, read, or a number"),
        ({"reads": "answer", "unclosed": float("nan")}, "unclosed=nan: give missing"),
        ({"reads": "answer", "unclosed": True}, "unclosed=True: give missing"),
        ({"unclosed": 0}, "unclosed has no effect on reads=all"),
        ({"reads": "transcript", "thinking": "opened"}, "thinking has no effect on reads=transcript"),
        ({"reads": "answer", "thinking": "closed"}, "thinking='closed': give the opening and the closing mark"),
        ({"reads": "answer", "thinking": ["<p>"]}, "give the opening and the closing mark"),
        ({"reads": "answer", "thinking": ["<p>", "<p>"]}, "give the opening and the closing mark"),
        ({"reads": "answer", "thinking": ["<p>", " "]}, "give the opening and the closing mark"),
        ({"reads": "answer", "thinking": {"tags": ["<p>", "</p>"], "open": True}}, "thinking.open: no such entry"),
        ({"reads": "answer", "thinking": {"opened": "yes"}}, "give the opening and the closing mark"),
    ],
)  # fmt: skip
def test_problems(entries: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=r"reward\.specs\.judge") as raised:
        Reads.parse(entries, where=WHERE)
    assert said in str(raised.value)


def test_the_table_names_what_is_read():
    assert str(Reads()) == "all"
    assert str(Reads(part="answer")) == "answer"
    assert str(Reads(part="answer", unclosed=0)) == "answer, unclosed 0"
