"""What `rmrl check` shows of one response."""

from __future__ import annotations

import re

from rmrl.data.responses import answered_rows
from rmrl.offline.response_rows import response_rows
from rmrl.offline.show import for_looking, show
from tests.offline.conftest import Bench
from tests.support import fakes


async def shown(bench: Bench, *overrides: str) -> str:
    checked = for_looking(
        bench.checked(f"data.files={bench.folder}/rows.jsonl", *overrides, needs_out=False)
    )
    scorer = bench.scorer(checked)
    try:
        return await show(scorer, response_rows(list(answered_rows(checked.config.data))))
    finally:
        await scorer.close()


async def test_a_rule(bench: Bench) -> None:
    bench.rows("two\nlines", reward_model={"ground_truth": "4"}, extra_info={"k": 1})
    text = await shown(
        bench, "reward.weights=[2.0]", "reward.transforms.length={kind: scale, factor: 10.0}"
    )
    assert (
        "=== rows.jsonl:0\nresponse:\n  | two\n  | lines\nreference: '4'\n--- length (rule, weight"
        " 2)\ninput:\n" in text
    )
    assert "  | solution_str='two\\nlines'\n  | ground_truth='4'\n  | extra_info={'k': 1}\n" in text
    assert (
        "also returned: first='t'\nscore: 0.9, 9 after its transforms\ntook: 0.00" in text
    )  # 9 characters / 10, times 10
    assert text.endswith("--- reward: 18")  # weight 2


async def test_a_judge_its_words_and_what_loading_took(bench: Bench) -> None:
    bench.rows("four")
    text = await shown(
        bench,
        "reward.models=[judge]",
        f"reward.specs.judge.path={bench.folder}/judge-model",
        "reward.specs.judge.engine.kwargs.text='8'",
    )
    assert "input:\n  | question 0 four\noutput:\n  | 8\nscore: 8\n" in text
    assert " tokens in, 1 out\n--- reward: 8\n\nloading took\n  judge: " in text


async def test_criteria_have_a_line_each(bench: Bench) -> None:
    bench.rows("four")
    text = await shown(
        bench,
        "reward.models=[careful]",
        f"reward.specs.careful.path={bench.folder}/judge-model",
        "reward.specs.careful.kind=rubric",
        "reward.specs.careful.criteria=[{text: right, choices: [N, Y], name: right}]",
        f"reward.specs.careful.engine.name={fakes.REWARD_ENGINE}",
        "+reward.specs.careful.engine.kwargs.choice_logprobs={}",
    )
    assert "Criterion:\n  | right\n" in text
    assert "also returned: right=0." in text
    assert "\n  criteria[0]: {'number': 1, 'name': 'right', 'text': 'right', 'weight': 1.0," in text


async def test_a_missing_verdict_is_shown_and_stops_nothing(bench: Bench) -> None:
    bench.rows("four")
    text = await shown(
        bench,
        "reward.models=[length,judge]",
        f"reward.specs.judge.path={bench.folder}/judge-model",
        "reward.specs.judge.engine.kwargs.text=hm",
        "reward.max_missing=0",
    )
    assert "output:\n  | hm\nscore: none, unparseable" in text
    assert (
        "--- reward: none (judge gave no verdict): in training the response leaves the loss" in text
    )


async def test_what_a_closed_gate_skips_is_told_nothing(bench: Bench) -> None:
    bench.rows("")
    text = await shown(
        bench,
        "reward.models=[length,judge]",
        f"reward.specs.judge.path={bench.folder}/judge-model",
        "reward.specs.judge.gate=length",
    )
    judged = text.partition("--- judge")[2]
    assert "input:" not in judged
    assert "score: none, skipped: not asked: its gate 'length' is closed here (0)" in judged


async def test_long_texts_are_cut_and_empty_ones_said(bench: Bench) -> None:
    bench.rows("x" * 5000, "")
    text = await shown(bench)
    assert "x ... (1000 more characters)" in text
    assert "response:\n  | (nothing)\n" in text


async def test_a_part_that_a_reward_reads(bench: Bench) -> None:
    bench.rows("<think>hm</think>\nfour")
    text = await shown(
        bench,
        "reward.models=[length,judge]",
        f"reward.specs.judge.path={bench.folder}/judge-model",
        "reward.specs.judge.engine.kwargs.text='8'",
        "reward.specs.judge.reads=answer",
        "+reward.specs.length.reads=reasoning",
    )
    assert "--- length (rule, weight 1, reads reasoning)\ninput:\n  | data_source=''\n" in text
    assert "  | solution_str='hm'\n" in text
    assert (
        "--- judge (generative, weight 1, reads answer)\nreads:\n  | four\ninput:\n"
        "  | question 0 four\noutput:\n  | 8\nscore: 8\n" in text
    )


async def test_a_response_without_the_part(bench: Bench) -> None:
    bench.rows("<think>hm")
    text = await shown(bench, "+reward.specs.length.reads=answer")
    assert (
        "--- length (rule, weight 1, reads answer)\nscore: none, unparseable: the response ends"
        " inside its thinking, so its answer is not complete: raise"
        " data.max_response_length, see that the marks fit the policy's (`thinking`), or give"
        " reward.specs.length.unclosed a score\n" in text
    )


async def test_a_second_model_of_a_judge_is_loaded_counted_and_told(bench: Bench) -> None:
    bench.rows("four")
    overrides = (
        "reward.models=[judge]",
        f"reward.specs.judge.path={bench.folder}/judge-model",
        "reward.specs.judge.engine.kwargs.text='8'",
        "reward.specs.judge.sampling={n: 3, temperature: 1.0, max_tokens: 16}",
    )
    (alone,) = re.findall(r"(\d+) tokens in", await shown(bench, *overrides))
    scalar = f"{{path: {bench.folder}/scalar-model, keep: 2, engine: {{kwargs: {{value: 0.5}}}}}}"
    text = await shown(bench, *overrides, f"reward.specs.judge.meta={scalar}")
    assert "also returned: votes=[8.0, 8.0, 8.0], meta=[0.5, 0.5, 0.5]," in text
    assert "kept=[True, True, False], meta_shift=0.0\nscore: 8\n" in text
    # One character is one token: "question 0 four" as the user's turn, "8" as the assistant's.
    reads = "<|im_start|>user\nquestion 0 four<|im_end|>\n<|im_start|>assistant\n8<|im_end|>\n"
    length = len(reads.replace("<|im_start|>", "*").replace("<|im_end|>", "*"))
    (tokens,) = re.findall(r"(\d+) tokens in", text)
    assert int(tokens) == int(alone) + 3 * length
    assert re.search(r"loading took\n  judge: .* s\n  judge/meta: .* s", text)
