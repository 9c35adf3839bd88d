from rmrl.inference.vllm.sampling import (
    cut_at_end,
    cut_at_stops,
    decoded,
    generation_options,
)
from rmrl.types import Sampling


class Tokens:
    eos_token_id = 2
    pad_token_id = None

    def decode(self, tokens: list[int], *, skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return " ".join(str(token) for token in tokens if token != self.eos_token_id)


def test_greedy_options_name_no_temperature() -> None:
    assert generation_options(Sampling(max_tokens=9, temperature=0.0), Tokens(), 5) == {
        "max_new_tokens": 5, "do_sample": False, "eos_token_id": [2], "pad_token_id": 2,
    }  # fmt: skip


def test_sampling_options() -> None:
    options = generation_options(
        Sampling(max_tokens=3, temperature=0.5, top_p=0.9, ignore_eos=True), Tokens(), 5
    )
    assert options["max_new_tokens"] == 3
    assert (options["temperature"], options["top_p"], options["top_k"]) == (0.5, 0.9, 0)
    assert options["eos_token_id"] is None


def test_cuts() -> None:
    assert cut_at_end([5, 2, 0, 0], [2]) == ([5, 2], True)
    assert cut_at_end([5, 2, 9, 0], [9, 2]) == ([5, 2], True)
    assert cut_at_end([5, 6], [2]) == ([5, 6], False)
    assert cut_at_end([5, 2], []) == ([5, 2], False)


def test_stop_tokens_end_a_sample_besides_the_end_token() -> None:
    both = Sampling(max_tokens=3, stop_token_ids=(7,))
    assert generation_options(both, Tokens(), 5)["eos_token_id"] == [2, 7]
    alone = Sampling(max_tokens=3, stop_token_ids=(7,), ignore_eos=True)
    assert generation_options(alone, Tokens(), 5)["eos_token_id"] == [7]


def test_a_text_is_cut_at_stops() -> None:
    assert cut_at_stops("one. two! three", ("!", ". ")) == ("one", True)
    assert cut_at_stops("one", ("!",)) == ("one", False)


def test_a_row_ends_at_its_end_token_a_stop_text_or_the_limit() -> None:
    greedy = Sampling(max_tokens=9, temperature=0.0)
    assert decoded([5, 2, 0, 0], Tokens(), greedy) == ("5", [5, 2], "stop")
    assert decoded([5, 6], Tokens(), greedy) == ("5 6", [5, 6], "length")
    stops = Sampling(max_tokens=9, temperature=0.0, stop=("6",))
    assert decoded([5, 6, 7], Tokens(), stops) == ("5 ", [5, 6, 7], "stop")
    endless = Sampling(max_tokens=9, temperature=0.0, ignore_eos=True)
    assert decoded([5, 2, 0], Tokens(), endless) == ("5 0", [5, 2, 0], "length")
