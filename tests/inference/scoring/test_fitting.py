from rmrl.inference.fitting import answered, overlong_logits, overlong_vector, sorted_batches
from rmrl.inference.reward_engine_base import PoolingRequest, overlong_detail


def test_only_what_fits_is_run_and_order_is_kept() -> None:
    ran: list[list[int]] = []

    def run(kept: list[int]) -> list[str]:
        ran.append(kept)
        return [f"ran {k}" for k in kept]

    assert answered([1, 20, 3], lambda r: r < 10, run=run, mark=lambda r: f"no {r}") == [
        "ran 1",
        "no 20",
        "ran 3",
    ]
    assert answered([20], lambda r: r < 10, run=run, mark=lambda r: f"no {r}") == ["no 20"]
    assert ran == [[1, 3]]


def test_batches_are_sorted_and_count_their_padding() -> None:
    # sorted lengths: 1 (3), 2 (1), 5 (0), 9 (2); 2 x 2 = 4 and 3 x 5 = 15 > 12, then 2 x 9 = 18 >
    # 12
    assert list(sorted_batches([5, 2, 9, 1], max_rows=8, max_tokens=12)) == [[3, 1], [0], [2]]
    assert list(sorted_batches([5, 2, 9, 1], max_rows=3, max_tokens=100)) == [[3, 1, 0], [2]]
    assert list(sorted_batches([50], max_rows=3, max_tokens=12)) == [[0]]
    assert list(sorted_batches([], max_rows=3, max_tokens=12)) == []


def test_marks() -> None:
    logits, vector = overlong_logits(PoolingRequest((1, 2, 3)), 2), overlong_vector(7, 6)
    assert (logits.logits, logits.failure, logits.tokens_in) == ((), "overlong", 3)
    assert (vector.vector, vector.failure, vector.detail) == ((), "overlong", overlong_detail(7, 6))
