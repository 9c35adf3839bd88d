"""`rmrl cache`: what it shows, what it drops, and what it answers to a mistake."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rmrl.commands.cache import age_s, gigabytes, size_text
from rmrl.inference.reward_engine_base import TextOutput, ValueOutput
from rmrl.main_cache import main
from rmrl.rewards.cache.file import open_file
from rmrl.rewards.cache.store import CacheStore

DAY_S = 86400.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three verdicts of `helpful` (of two scorers), 1, 10 and 40 days old; two of `org/scalar`,
    fresh."""
    path = tmp_path / "c.sqlite"
    store = CacheStore(path, max_bytes=2**30)
    text = [TextOutput("[bold]fine[/bold]\x1b[31m Score: 7", "stop", 9, 8)]
    store.put_many(
        {bytes([0] * 31 + [1]): text, bytes([0] * 31 + [2]): text}, scorer="s1", reward="helpful"
    )
    store.put_many({bytes([0] * 31 + [3]): text}, scorer="s2", reward="helpful")
    store.put_many(
        {bytes([1] * 32): ValueOutput(1.5, 7), bytes([2] * 32): ValueOutput(-2.5, 7)},
        scorer="s3",
        reward="org/scalar",
    )
    store.get_many([bytes([1] * 32)])
    store.close()
    connection = open_file(path, create=False)
    for verdict, days in ((1, 1), (2, 10), (3, 40)):
        connection.execute(
            "UPDATE uses SET last_used = ?, created = ? WHERE id = ?",
            (*[time.time() - days * DAY_S] * 2, verdict),
        )
    connection.close()
    return path


def left(path: Path) -> list[int]:
    connection = open_file(path, create=False)
    found = [
        row[0]
        for row in connection.execute(
            "SELECT uses.id FROM uses JOIN verdicts ON verdicts.id = uses.id ORDER BY uses.id"
        )
    ]
    connection.close()
    return found


def words(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("what", [[], ["stats"]])
def test_stats_per_reward(file: Path, what: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(file), *what]) == 0
    lines = words(capsys)
    assert lines[0][:3] == [f"{file}:", "5", "verdicts"]
    # 3 texts of 32 + 65 bytes (the escape character is written as 6); 32 + 20 and 32 + 21
    assert lines[2] == ["helpful", "2", "3", "291", "B", "0", "6", "w", "ago", "24", "h", "ago"]
    assert lines[3][:6] == ["org/scalar", "1", "2", "105", "B", "1"]


def test_stats_of_an_empty_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.sqlite"
    CacheStore(path, max_bytes=2**30).close()
    assert main([str(path)]) == 0
    assert "0 verdicts" in capsys.readouterr().out


def test_show_names_the_newest_and_disarms_what_a_model_wrote(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(file), "show", "--reward", "helpful", "--limit", "2"]) == 0
    out = capsys.readouterr().out
    assert "[bold]fine[/bold]" in out
    assert "\x1b[31m" not in out
    lines = [line.split() for line in out.splitlines()]
    assert [line[:8] for line in lines[1:]] == [
        ["helpful", "000000000000", "24", "h", "ago", "24", "h", "ago"],
        ["helpful", "000000000000", "10", "d", "ago", "10", "d", "ago"],
    ]


def test_show_all(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(file), "show"]) == 0
    out = capsys.readouterr().out
    assert '{"value": 1.5, "in": 7}' in out
    assert len(out.splitlines()) == 6


@pytest.mark.parametrize(
    ("arguments", "remaining"),
    [
        (["--older-than", "30d"], [1, 2, 4, 5]),
        (["--older-than", "5d"], [1, 4, 5]),
        (["--older-than", "0m", "--reward", "org/scalar"], [1, 2, 3]),
        (["--reward", "helpful"], [4, 5]),
        (["--max-gb", "0"], []),
        (["--max-gb", "0", "--reward", "helpful"], [4, 5]),
        (["--max-gb", "1"], [1, 2, 3, 4, 5]),
        (["--older-than", "5d", "--max-gb", "1"], [1, 4, 5]),
        (["--older-than", "5d", "--max-gb", "0"], []),
    ],
)
def test_prune(
    file: Path, arguments: list[str], remaining: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(file), "prune", *arguments]) == 0
    assert left(file) == [1, 2, 3, 4, 5]
    said = capsys.readouterr().out
    if len(remaining) < 5:
        assert f"would drop {5 - len(remaining)} of 5 verdicts; nothing was dropped" in said
    assert main([str(file), "prune", *arguments, "--yes"]) == 0
    assert left(file) == remaining
    assert f"dropped {5 - len(remaining)} of 5 verdicts" in capsys.readouterr().out


def test_prune_gives_the_space_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.sqlite"
    store = CacheStore(path, max_bytes=2**30)
    text = "".join(chr(0x4E00 + i * 7919 % 20000) for i in range(4000))
    store.put_many(
        {bytes([i] * 32): [TextOutput(f"{i}{text}", "stop", 1, 1)] for i in range(100)},
        scorer="s",
        reward="a",
    )
    store.close()
    before = path.stat().st_size
    assert main([str(path), "prune", "--max-gb", str(before / 2 / 2**30), "--yes"]) == 0
    assert 0.4 * before < path.stat().st_size <= 0.5 * before
    assert capsys.readouterr().out.startswith(
        "dropped 5"
    )  # a few more than half, for the pages that hold no verdicts


@pytest.mark.parametrize(
    ("arguments", "words_"),
    [
        (["prune"], "prune needs a rule for the verdicts to drop; give --older-than 30d"),
        (["prune", "--older-than", "30"], "'30' is not an age; give a number and a unit"),
        (["prune", "--older-than", "-3d"], "expected one argument"),
        (["prune", "--max-gb", "big"], "'big' is not a size"),
        (["prune", "--max-gb", "nan"], "'nan' is not a size"),
        (
            ["prune", "--reward", "helpfull"],
            "has no verdicts of 'helpfull'; did you mean 'helpful'?",
        ),
        (["show", "--limit", "0"], "'0' is not a number of rows"),
        (["show", "--reward", "x"], "has no verdicts of 'x'; known: helpful, org/scalar"),
        (["clean"], "invalid choice: 'clean'"),
    ],
)
def test_mistakes_are_sentences(
    file: Path, arguments: list[str], words_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(file), *arguments]) == 2
    assert words_ in capsys.readouterr().err
    assert left(file) == [1, 2, 3, 4, 5]


def test_files_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.sqlite")]) == 2
    assert "there is no cache" in capsys.readouterr().err
    assert not (tmp_path / "none.sqlite").exists()
    (tmp_path / "text").write_text("a,b\n", encoding="utf-8")
    assert main([str(tmp_path / "text")]) == 2
    assert "is not a cache of verdicts" in capsys.readouterr().err
    assert main([]) == 2
    assert main(["--help"]) == 0


def test_damage_found_while_reading_is_a_sentence(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = file.read_bytes()
    page = content.index(b"Score: 7") // 4096
    file.write_bytes(content[: page * 4096] + b"\xa5" * 4096 + content[(page + 1) * 4096 :])
    assert main([str(file), "show"]) in (2, 6)
    assert "c.sqlite' " in capsys.readouterr().err


def test_units() -> None:
    assert age_s("90m") == 5400.0
    assert age_s("12h") == 43200.0
    assert age_s("1.5d") == 129600.0
    assert age_s("2w") == 1209600.0
    assert gigabytes("0.5") == 2**29
    assert [size_text(n) for n in (1023, 1536, 5 * 2**20, 3 * 2**30)] == [
        "1023 B",
        "1.5 KB",
        "5.0 MB",
        "3.0 GB",
    ]
