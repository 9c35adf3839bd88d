"""Shell scripts as text: words, variables, arrays and arithmetic; nothing runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.config.compat.shell import read_script


def words(text: str) -> list[list[str]]:
    return read_script(text).statements


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b=1 'c d' \"e f\"", [["a", "b=1", "c d", "e f"]]),
        ("a \\\n  b  # why\nc", [["a", "b"], ["c"]]),
        ("a#b; c | tee log 2>&1", [["a#b"], ["c"], ["tee", "log"]]),
        ("x=3\na $x ${x} '$x' \"$x\"", [["a", "3", "3", "$x", "3"]]),
        ("x='1 2'\na $x \"$x\"", [["a", "1", "2", "1 2"]]),
        ("a ${x:-5} ${x:-'b c'}", [["a", "5", "b", "c"]]),
        ("x=(a 'b c' # no\n  d)\nx+=(e)\nrun \"${x[@]}\"", [["run", "a", "b c", "d", "e"]]),
        ("p=1024 r=512\na $((p + r * 2)) $(( (p+r)/4 ))", [["a", "2048", "384"]]),
        ("export A=1 B=$A\nrun \"k=${B}\"", [["run", "k=1"]]),
        ("a l=\"['$x']\"", [["a", "l=['$x']"]]),
        ("x=1\nx=2\na $x", [["a", "2"]]),
        ("a \"q\\\"r\" s\\ t", [["a", 'q"r', "s t"]]),
    ],
)  # fmt: skip
def test_the_words_of_statements(text: str, expected: list[list[str]]):
    assert words(text) == expected


def test_what_only_running_would_tell_stays_a_variable(tmp_path: Path):
    proof = tmp_path / "ran"
    script = read_script(f"t=$(touch {proof})\nrun $t $HOME `touch {proof}` $((2 ** 3)) $1")
    assert script.statements == [
        ["run", "$RESULT_1", "$HOME", "$RESULT_2", "$RESULT_3", "$RESULT_4"]
    ]
    assert script.unknown["RESULT_1"] == f"$(touch {proof})"
    assert script.unknown["HOME"] == ""
    assert not proof.exists()


def test_what_is_set_in_a_condition_is_unsure_and_arguments_are_noticed():
    script = read_script('if [ "$1" = x ]; then\n  lr=1\nelse\n  lr=2\nfi\nn=3\nrun $lr $n "$@"')
    assert script.statements[-1] == ["run", "2", "3"]
    assert script.unsure == {"lr"}
    assert script.passes_arguments


@pytest.mark.parametrize(
    "text", ["a 'b", 'a "b', "a $(b", "a ${b", "x=(a", "a \\", "$", "$((1+", "a `b"]
)
def test_a_script_that_is_cut_off_is_still_read(text: str):
    read_script(text)


def test_reading_takes_linear_time():
    assert len(words("a " * 50_000)[0]) == 50_000
