"""The response of a query, in which its prompt and special tokens stand too."""

from __future__ import annotations

import time

from rmrl.data.queries import LEAST_OVERLAP, response_of


def test_the_response_stands_behind_the_prompt() -> None:
    assert response_of("What?Four.", "What?") == "Four."
    assert response_of("<bos>What?Four.<eos>", "What?") == "Four."
    # the mark of the end is no part of it, those in the middle are
    assert response_of("Q a</s>b</s>\n<|endoftext|>", "Q ") == "a</s>b"
    assert response_of("Q a b  ", "Q ") == "a b  "
    assert response_of("Q ", "Q ") == ""
    assert response_of("something else", "Q") is None


def test_a_mark_that_closes_a_part_of_the_text_stays() -> None:
    assert response_of("Q <s>x</s>", "Q ") == "<s>x</s>"
    assert response_of("Q <s>x</s></s>\n</s>", "Q ") == "<s>x</s>"
    turns = "a<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\nc"
    assert response_of(f"Q {turns}<|im_end|>\n", "Q ") == turns


def test_a_prompt_that_was_cut_at_its_start_is_recognised_by_its_end() -> None:
    prompt = "left out. " + "x" * 20 + " and this is what is left of it:"
    begin = prompt[10:]
    assert len(begin) >= LEAST_OVERLAP
    assert response_of(begin + " answer", prompt) == " answer"
    assert response_of(begin[-20:] + " answer", prompt) is None
    # a quotation of the prompt far inside of the query is none of its begin
    assert response_of("y" * 200 + "What?" + "z", "What?") is None


def test_the_cut_takes_linear_time() -> None:
    began = time.process_time()  # a machine that stops for a while is not counted
    assert response_of("a" * 200_000, "a" * 100_000 + "b" + "a" * 100_000) == "a" * 100_000
    assert response_of("ab" * 100_000 + "c", "ba" * 100_000) is not None
    assert response_of("Q" + "</s> " * 100_000, "Q") == ""
    assert time.process_time() - began < 60
