import pytest

from rmrl.rewards.remote.limits import TokenBucket


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_of_one_second_then_evenly_spread() -> None:
    bucket = TokenBucket(120, Clock())
    # 120 a minute are 2 a second: two at once, then one every 0.5 s
    assert [bucket.reserve() for _ in range(5)] == pytest.approx([0, 0, 0.5, 1.0, 1.5])


def test_a_slow_limit_still_gives_one_turn() -> None:
    bucket = TokenBucket(6, Clock())
    assert [bucket.reserve() for _ in range(3)] == pytest.approx([0, 10, 20])


def test_time_fills_it_and_no_further_than_a_second() -> None:
    clock = Clock()
    bucket = TokenBucket(120, clock)
    for _ in range(4):
        bucket.reserve()  # two in debt
    clock.now = 1.0  # the debt is paid
    assert bucket.reserve() == pytest.approx(0.5)
    clock.now = 100.0
    assert [bucket.reserve() for _ in range(3)] == pytest.approx([0, 0, 0.5])


def test_a_turn_given_back_is_there_again() -> None:
    bucket = TokenBucket(60, Clock())
    assert bucket.reserve() == 0
    bucket.give_back()
    assert [bucket.reserve(), bucket.reserve()] == pytest.approx([0, 1])
