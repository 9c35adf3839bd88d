from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmrl.data.loader import PromptLoader
from rmrl.errors import CheckpointError, ConfigError
from rmrl.types import Prompt


def prompts(count: int, text: str = "q") -> list[Prompt]:
    return [
        Prompt(id=f"f:{i}", messages=({"role": "user", "content": f"{text}{i}"},), token_ids=(i,))
        for i in range(count)
    ]


def loader(
    count: int = 10,
    batch_size: int = 3,
    *,
    shuffle: bool = True,
    seed: int = 7,
    text: str = "q",
):
    return PromptLoader(prompts(count, text), batch_size=batch_size, shuffle=shuffle, seed=seed)


def batches(data: PromptLoader, count: int) -> list[list[int]]:
    """Row numbers of the next `count` batches."""
    taken = [data.take(data.batch_size) for _ in range(count)]
    return [[int(prompt.id[2:]) for prompt in batch] for batch in taken]


def test_in_order_without_shuffle_and_the_rest_is_dropped():
    data = loader(shuffle=False)
    assert batches(data, 6) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]] * 2
    assert data.epoch == 1


def test_each_epoch_is_another_permutation():
    first, second = batches(loader(10, 10), 2)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert first != list(range(10))


def test_the_order_is_that_of_the_seed():
    assert batches(loader(), 9) == batches(loader(), 9)
    assert batches(loader(), 9) != batches(loader(seed=8), 9)


def test_batches_have_no_end():
    assert len(batches(loader(3, 3), 50)) == 50


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 23), st.data(), st.booleans())
def test_resume_at_any_point_gives_the_same_rest(count: int, data, shuffle: bool):
    batch_size = data.draw(st.integers(1, count))
    cut, more = data.draw(st.integers(0, 30)), 15
    settings = {"shuffle": shuffle, "seed": 3}
    whole = batches(loader(count, batch_size, **settings), cut + more)
    first = loader(count, batch_size, **settings)
    head = batches(first, cut)
    state = json.loads(json.dumps(first.state_dict()))
    second = loader(count, batch_size, **settings)
    second.load_state_dict(state)
    assert head + batches(second, more) == whole


def test_resume_with_another_batch_size_goes_on_with_the_next_row():
    first = loader(10, 2, shuffle=False)
    batches(first, 2)
    second = loader(10, 3, shuffle=False)
    second.load_state_dict(first.state_dict())
    assert batches(second, 3) == [[4, 5, 6], [7, 8, 9], [0, 1, 2]]


def test_state_is_plain_json():
    data = loader()
    batches(data, 1)
    state = data.state_dict()
    assert {k: state[k] for k in ("epoch", "position", "seed", "shuffle", "num_rows")} == {
        "epoch": 0, "position": 3, "seed": 7, "shuffle": True, "num_rows": 10,
    }  # fmt: skip
    assert json.loads(json.dumps(state)) == state


@pytest.mark.parametrize(
    ("other", "parts"),
    [
        (loader(11), ["saved with 10 prompts", "now has 11", "data.train_files"]),
        (loader(text="other"), ["other prompts", "fingerprint", "10 prompts", "start a new run"]),
        (loader(seed=8), ["data.seed=7", "data.seed=8", "resume with data.seed=7"]),
        (loader(shuffle=False), ["data.shuffle=True", "data.shuffle=False"]),
    ],
)
def test_another_data_set_is_refused(other: PromptLoader, parts: list[str]):
    with pytest.raises(CheckpointError, match="(?s)" + ".*".join(map(re.escape, parts))):
        other.load_state_dict(loader().state_dict())


def test_a_refused_state_changes_nothing():
    data = loader()
    with pytest.raises(CheckpointError):
        data.load_state_dict({**loader(11).state_dict(), "epoch": 5})
    assert (data.epoch, data.position) == (0, 0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epoch": None}, "lacks epoch"),
        ({"position": "3"}, "lacks position"),
        ({"fingerprint": 5}, "lacks fingerprint"),
        ({"position": 99}, "row 99 of 10"),
    ],
)
def test_a_state_that_cannot_be(change: dict, named: str):
    with pytest.raises(CheckpointError, match=named):
        loader().load_state_dict({**loader().state_dict(), **change})


def test_tokens_do_not_enter_the_fingerprint_but_order_does():
    rows = prompts(3)
    settings = {"batch_size": 1, "shuffle": False, "seed": 0}
    other_tokens = [Prompt(id=p.id, messages=p.messages, token_ids=(99,)) for p in rows]
    assert (
        PromptLoader(rows, **settings).fingerprint
        == PromptLoader(other_tokens, **settings).fingerprint
    )
    assert (
        PromptLoader(rows, **settings).fingerprint
        != PromptLoader(rows[::-1], **settings).fingerprint
    )


@pytest.mark.parametrize(
    ("count", "batch_size", "seed", "named"),
    [
        (5, 8, 7, "data.train_batch_size=8 .* 5 prompts .* data.train_batch_size=5"),
        (0, 1, 7, "0 prompts"),
        (5, 0, -1, "2 problems.*train_batch_size=0.*data.seed=-1"),
    ],
)
def test_what_makes_no_batch_is_refused(count: int, batch_size: int, seed: int, named: str):
    with pytest.raises(ConfigError, match=f"(?s){named}"):
        loader(count, batch_size, seed=seed)
