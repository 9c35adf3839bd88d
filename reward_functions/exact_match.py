"""Rule: 1 if the response's answer, the text in its last <answer> tag, equals one of the references
after SQuAD's normalization, else 0 (see rmrl/rewards/answers/exact_match.py). It is for words: -5
equals 5 there.

`tag` is another tag; "" compares the whole response: reward.specs.exact_match.arguments.tag=""
"""

from rmrl.rewards.answers import exact_match


def compute_score(data_source, solution_str, ground_truth, extra_info=None, tag="answer"):
    """The verdict, and the extracted answer as a column of its own."""
    answer = exact_match.extract_answer(solution_str, tag)
    return {"score": exact_match.score(solution_str, ground_truth, tag), "answer": answer}
