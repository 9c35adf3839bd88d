"""What goes into the cache comes out the same, and what is no result does not go in."""

from __future__ import annotations

import dataclasses
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmrl.inference.reward_engine_base import (
    FAILURES,
    EmbedOutput,
    LabelOutput,
    TextOutput,
    TokenOutput,
    ValueOutput,
)
from rmrl.rewards.cache.codec import decode, encode

finite = st.floats(allow_nan=False, allow_infinity=False)
sample = st.builds(
    TextOutput,
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(["stop", "length"]),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    choice_logprobs=st.lists(finite | st.just(-math.inf), max_size=3).map(tuple),
)
extra = st.lists(
    st.tuples(
        st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.booleans() | finite
    ),
    max_size=3,
).map(tuple)
value = st.builds(ValueOutput, finite, st.integers(0, 10**6), extra=extra)
labels = st.builds(
    LabelOutput, st.lists(finite, min_size=1, max_size=4).map(tuple), st.integers(0, 10**6)
)
tokens = st.builds(
    TokenOutput, st.lists(st.tuples(finite, finite), max_size=4).map(tuple), st.integers(0, 10**6)
)
vector = st.builds(
    EmbedOutput, st.lists(st.floats(-1, 1, width=32), min_size=1).map(tuple), st.integers(0, 10**6)
)


@given(st.lists(sample, min_size=1, max_size=3) | value | labels | tokens | vector)
def test_round_trip(result: Any) -> None:
    stored = encode(result)
    assert stored is not None
    marked = (
        [dataclasses.replace(o, cached=True) for o in result]
        if isinstance(result, list)
        else dataclasses.replace(result, cached=True)
    )
    assert decode(stored) == marked


def test_long_text_is_compressed_and_short_text_is_readable() -> None:
    long = [TextOutput("the same words again " * 200, "stop", 5, 800)]
    short = [TextOutput("Score: 7", "stop", 5, 4)]
    assert encode(short) == b'{"text":[["Score: 7","stop",5,4,[]]]}'
    stored = encode(long)
    assert stored is not None
    assert len(stored) < 200
    assert decode(stored) == [dataclasses.replace(long[0], cached=True)]


def test_an_embedding_is_kept_as_float32() -> None:
    numbers = np.random.default_rng(0).standard_normal(384).astype(np.float32)
    stored = encode(EmbedOutput(tuple(numbers.tolist()), 9))
    assert stored is not None
    assert len(stored) < 384 * 4 * 4 / 3 + 40  # base64 takes 4 characters for 3 bytes
    assert decode(stored) == EmbedOutput(tuple(numbers.tolist()), 9, cached=True)


@pytest.mark.parametrize(
    "result",
    [
        [],
        ValueOutput(math.nan, 3),
        ValueOutput(math.inf, 3),
        ValueOutput(1.0, 3, extra=(("when", object()),)),
        ValueOutput(1.0, 3, extra=(("gap", math.nan),)),
        TokenOutput(((0.0, math.nan),), 3),
        EmbedOutput((), 3),
        EmbedOutput((math.nan,), 3),
        [TextOutput("a", "stop", 1, 1, choice_logprobs=(math.nan,))],
        [TextOutput("\ud800", "stop", 1, 1)],
        [TextOutput("fine", "stop", 1, 1), TextOutput("", "", 1, 0, failure="timeout")],
        *(ValueOutput(1.0, 3, failure=failure) for failure in FAILURES),
    ],
)
def test_failures_and_no_numbers_are_not_kept(result: Any) -> None:
    assert encode(result) is None


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"{}",
        b"\x78\x9cgarbage",
        b"[1]",
        b'{"text":[[1]]}',
        b'{"vector":"*","in":1}',
        b"\xff\xfe",
        b"{",
    ],
)
def test_damaged_bytes_are_no_result(stored: bytes) -> None:
    assert decode(stored) is None


def test_the_vector_is_little_endian() -> None:
    assert decode(b'{"vector":"AACAPw==","in":1}') == EmbedOutput(
        struct.unpack("<f", b"\x00\x00\x80\x3f"), 1, cached=True
    )
