"""One or a few rows of each format in its published layout, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LABELS = (
    "id", "label", "subset", "domain", "pair_id", "source", "annotator1", "annotator2",
    "annotator3", "correct", "responses", "steps", "value", "chosen", "rejected", "targets",
    "loser_list", "pair_uid", "bon_uid", "category_path", "motivation_app", "score_env.reward",
    "scores", "sampled_conflict_pairs", "model_name",
)  # fmt: skip
"""Columns that rows keep where judgements are recorded and no text is scored."""
ROWS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "pairs": [
        {"id": "p0", "prompt": "2 + 2?", "chosen": "4", "rejected": "five"},
        {"prompt": "Hi", "response_a": "Go away", "response_b": "Hello!", "label": "B"},
        {"prompt": "Hi", "response_a": "Hello", "response_b": "Hello!", "label": "tie"},
    ],
    "best_of_n": [
        {
            "id": "b0",
            "prompt": "2 + 2?",
            "responses": ["4", "It is 4", "5"],
            "correct": [True, True, False],
            "answers": ["4", "4", "5"],
        },
        {
            "id": "b1",
            "prompt": "3 + 3?",
            "responses": ["6", "7"],
            "correct": 0,
            "answers": ["6", "7"],
        },
    ],
    "absolute": [
        {"id": "a0", "prompt": "Hi", "response": "Hello!", "value": [5, 4]},
        {"id": "a1", "prompt": "Hi", "response": "No", "value": 1},
    ],
    "traces": [
        {
            "prompt_id": "t0",
            "prompt": [{"role": "user", "content": "2 * 3?"}],
            "response": [{"role": "assistant", "content": "6"}],
            "score_env.reward": 1.0,
        },
        {
            "prompt": "2 + 3?",
            "responses": ["5", [{"role": "assistant", "content": "6"}], "lost"],
            "score_env.reward": [0.5, 0, None],
        },
    ],
    "rewardbench": [
        {
            "id": 30,
            "prompt": "Hi",
            "chosen": "Hello!",
            "rejected": "No",
            "subset": "alpacaeval-easy",
        },
    ],
    "rewardbench2": [
        {
            "id": "7",
            "prompt": "Hi",
            "chosen": ["Hello!"],
            "rejected": ["No", "Go", "What"],
            "subset": "Focus",
        },
        {
            "id": "ref:0",
            "prompt": "Name red",
            "chosen": ["red"],
            "rejected": ["cow", "dog"],
            "subset": "Ties",
        },
        {
            "id": "tied:0",
            "prompt": "Name a colour",
            "chosen": ["red", "blue"],
            "rejected": ["cow"],
            "subset": "Ties",
        },
    ],
    "rm_bench": [
        {
            "id": "r0",
            "prompt": "Hi",
            "chosen": ["a", "b b", "**c**"],
            "rejected": ["x", "y y", "**z**"],
            "domain": "safety-refuse",
        },
    ],
    "judgebench": [
        {
            "pair_id": "j0",
            "source": "mmlu-pro-law",
            "question": "Is it?",
            "response_A": "Yes",
            "response_B": "No",
            "label": "B>A",
        },
    ],
    "llmbar": [
        {"input": "Say hi", "output_1": "hi", "output_2": "bye", "label": 1},
    ],
    "pandalm": [
        {
            "instruction": "Shorten",
            "input": "a long text",
            "response1": "short",
            "response2": "longer",
            "annotator1": 1,
            "annotator2": 0,
            "annotator3": 1,
            "motivation_app": "Grammarly",
        },
    ],
    "rmb": [
        {
            "pair_uid": "1",
            "conversation_input": [{"role": "user", "content": "Hi", "language": "English"}],
            "chosen": {"llm_name": "m", "answer": "Hello!"},
            "reject": {"llm_name": "n", "answer": "No"},
            "category_path": "Pairwise_set/Helpfulness/Chat/Casual",
        },
        {
            "bon_uid": "1",
            "conversation_input": [{"role": "user", "content": "Hi", "language": "English"}],
            "bon_best": {"llm_name": "m", "answer": "Hello!"},
            "loser_list": [{"llm_name": "n", "answer": "No"}, {"llm_name": "o", "answer": "Go"}],
            "category_path": "BoN_set/Helpfulness/Chat/Casual",
        },
    ],
    "ppe": [
        {
            "question_id": "q0",
            "model_name": "gemma",
            "prompt": "2 + 2?",
            "response_1": "4",
            "response_2": "5",
            "response_3": "four",
            "response_4": "6",
            "scores": [True, False, True, False],
            "mean_score": 0.5,
            "sampled_conflict_pairs": [[0, 1], [3, 2]],
        },
    ],
    "hhh": [
        {"input": "Help?", "targets": {"choices": ["Sure", "No"], "labels": [1, 0]}},
    ],
    "processbench": [
        {
            "id": "gsm8k-0",
            "problem": "1 + 1 + 1?",
            "steps": ["1 + 1 = 2", "2 + 1 = 4"],
            "final_answer_correct": False,
            "label": 1,
        },
        {
            "id": "gsm8k-1",
            "problem": "1 + 1?",
            "steps": ["1 + 1 = 2"],
            "final_answer_correct": True,
            "label": -1,
        },
    ],
}
"""Format -> rows."""
