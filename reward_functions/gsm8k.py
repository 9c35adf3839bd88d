"""Rule: 1 if the response's final number equals the reference number, else 0 (see
rmrl/rewards/answers/gsm8k.py).

`extra_info["gsm8k_method"]` may be "strict" (only a number after "####" counts) or "flexible"
(default).
"""

from rmrl.rewards.answers import gsm8k


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """The verdict, and the extracted answer as a column of its own."""
    method = (extra_info or {}).get("gsm8k_method", "flexible")
    answer = gsm8k.extract_answer(solution_str, method)
    return {"score": gsm8k.score(solution_str, ground_truth, method), "answer": answer}
