"""Names cut into portions that are read together."""

from __future__ import annotations

from rmrl.backends.portions import portions

SIZES = {"qkv": 6, "fc": 3, "big": 20}
HOLDERS = {"q": "qkv", "k": "qkv", "v": "qkv", "fc": "fc", "big": "big"}


def cut(names: str, at_once: int) -> list[list[str]]:
    return list(
        portions(
            names.split(), stored_in=HOLDERS.__getitem__, size=SIZES.__getitem__, at_once=at_once
        )
    )


def test_a_tensor_counts_once_in_a_portion_and_again_in_the_next():
    assert cut("q k fc v", 9) == [["q", "k", "fc", "v"]]  # 6 + 3
    assert cut("q k fc v", 8) == [["q", "k"], ["fc"], ["v"]]


def test_a_larger_one_is_a_portion_by_itself():
    assert cut("fc big fc", 9) == [["fc"], ["big"], ["fc"]]
    assert cut("", 9) == []
