import re

from rmrl.columns import WIDTH, aligned, middle_out


def test_columns_have_the_width_of_their_longest_cell() -> None:
    rows = [("name", "kind", "GiB"), ("judge", "generative", "4")]
    assert aligned(rows, right=(2,)) == [
        "  name   kind        GiB",
        "  judge  generative    4",
    ]


def test_lines_end_with_their_last_letter() -> None:
    assert aligned([("a", "long"), ("b", "")]) == ["  a  long", "  b"]


def test_a_table_that_is_too_wide_goes_on_below_with_every_figure() -> None:
    names: list[str] = []
    figures: list[str] = []
    for n in range(12):
        names.append(f"{n}_a_reward_with_a_name_of_sixty_characters_and_some_more_{n}")
    rows = [["accuracy", *names]]
    for row, name in enumerate(names):
        cells: list[str] = []
        for column in range(12):
            cells.append(f"{row}.{column}")
        rows.append([name, *cells])
        figures += cells
    lines = aligned(rows, right=range(1, 13))
    assert max(map(len, lines)) <= WIDTH
    assert sorted(re.findall(r" (\d+\.\d+)", "\n".join(lines))) == sorted(figures)
    # Each block begins with the rewards' names, shortened so that they still differ.
    starts = [line.split()[0] for line in lines if line]
    assert starts.count("accuracy") == lines.count("") + 1
    assert len(set(starts)) == 13


def test_a_long_text_is_wrapped_where_the_table_is_too_wide() -> None:
    text = " ".join(["word"] * 25)
    lines = aligned([("reward", "kind", "runs on"), ("x", "rule", text)])
    assert lines[:3] == ["  reward  kind", "  x       rule", ""]
    assert lines[3:] == [
        "  reward  runs on",
        "  x       " + " ".join(["word"] * 18),
        "          " + " ".join(["word"] * 7),
    ]


def test_a_table_of_a_hundred_characters_stands_in_one_block() -> None:
    rows = [["a", "b" * 95], ["1", "2"]]
    assert aligned(rows) == ["  a  " + "b" * 95, "  1  2"]
    assert aligned([["a", "b" * 96], ["1", "2"]]) == [
        "  a  " + "b" * 46 + "..." + "b" * 46,
        "  1  2",
    ]


def test_a_long_word_keeps_its_two_ends() -> None:
    assert middle_out("abcdefghij", 10) == "abcdefghij"
    assert middle_out("abcdefghijk", 10) == "abc...hijk"
