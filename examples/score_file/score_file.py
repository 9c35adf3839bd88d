"""Score a file of responses from Python; see README.md."""

# %% Read the rows: a question, its reference answer, and three responses.
import json
from pathlib import Path

from rmrl import Rewards

HERE = Path(__file__).resolve().parent
rows = [
    json.loads(line) for line in (HERE / "answers.jsonl").read_text(encoding="utf-8").splitlines()
]


# %% A rule of our own.
def short(solution_str: str) -> float:
    """Return 1 for an empty response and 0 for 80 characters and more, a straight line between."""
    return max(0.0, 1.0 - len(solution_str) / 80)


# %% Score. `gate`: only responses that `gsm8k` holds for right go on to `short`.
config = {
    "reward": {
        "models": ["gsm8k", short],
        "weights": [1.0, 0.5],
        "combine": "gate",
        "gates": ["gsm8k"],
    },
    "trainer": {"device": "cpu"},
}
with Rewards(config) as rewards:
    table = rewards.score_rows(rows)
print(table)

# %% What each rule said. `skipped` is a response that the gate kept from it.
for row in table:
    print(row["prompt"])
    for reward, right, brevity, status in zip(
        row["reward"], row["score_gsm8k"], row["score_short"], row["status_short"], strict=True
    ):
        said = status if brevity is None else f"{brevity:.3f}"
        print(f"  reward {reward:.3f}  gsm8k {right:g}  short {said}")

# %% The best response to each question.
for row in table:
    best = max(range(len(row["responses"])), key=row["reward"].__getitem__)
    print(f"{row['reward'][best]:.3f}  {row['responses'][best]!r}")
