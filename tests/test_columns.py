from rmrl.columns import aligned


def test_columns_have_the_width_of_their_longest_cell() -> None:
    rows = [("name", "kind", "GiB"), ("judge", "generative", "4")]
    assert aligned(rows, right=(2,)) == [
        "  name   kind        GiB",
        "  judge  generative    4",
    ]


def test_lines_end_with_their_last_letter() -> None:
    assert aligned([("a", "long"), ("b", "")]) == ["  a  long", "  b"]
