"""Rule: 1 where the judge's verdict is the label, else 0. No verdict is a wrong one, since the
policy could otherwise keep silent where it is not sure."""

from rmrl.rewards.judging.verdicts import last_choice


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    verdict = last_choice(solution_str, ["A", "B"])
    return {"score": float(verdict == ground_truth), "verdict": verdict or "none"}
