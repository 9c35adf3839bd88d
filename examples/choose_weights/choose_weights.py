"""Which weights do people's choices ask for? See README.md."""

# %% Two hundred pairs: people want a right answer, and of two right ones the shorter.
import json
import random
import sys
import tempfile
from pathlib import Path

from rmrl import Rewards
from rmrl.main_eval import main as rmrl_eval

HERE = Path(__file__).resolve().parent
work = Path(tempfile.mkdtemp())
random.seed(0)
WORDS = [
    "well",
    "let",
    "us",
    "think",
    "about",
    "this",
    "question",
    "one",
    "small",
    "step",
    "at",
    "a",
    "time",
]


def response(answer: int) -> str:
    """Return a response of random length."""
    return " ".join(random.choices(WORDS, k=random.randrange(40))) + f"\n#### {answer}"


def worth(text: str, right: int) -> float:
    """Return what a person sees in a response: the answer, a little its length, and noise."""
    is_right = text.endswith(f"#### {right}")
    return 2.0 * is_right - len(text) / 100 + random.gauss(0, 0.5)


pairs: list[dict[str, str]] = []
for number in range(200):
    first, second = random.randrange(50), random.randrange(50)
    texts = [response(first + second + random.choice([0, 0, 1])) for _ in range(2)]
    texts.sort(key=lambda text: worth(text, first + second), reverse=True)
    pairs.append(
        {
            "id": str(number),
            "prompt": f"What is {first} + {second}?",
            "ground_truth": str(first + second),
            "chosen": texts[0],
            "rejected": texts[1],
        }
    )
(work / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))

# %% Three rewards: is the answer right, is the response short, does it have an even length?
functions = [str(HERE / "rules"), str(HERE.parents[1] / "reward_functions")]
models = ["gsm8k", "short", "even"]

# %% `rmrl eval` fits weights, and tells their accuracy on pairs that the fit has not seen.
code = rmrl_eval(
    [
        "eval.format=pairs",
        f"data.files={work / 'pairs.jsonl'}",
        f"reward.models=[{','.join(models)}]",
        f"reward.functions_dir=[{','.join(functions)}]",
        "trainer.device=cpu",
        f"out={work / 'eval'}",
    ]
)
if code:
    sys.exit(code)
fitted = json.loads((work / "eval" / "report.json").read_text(encoding="utf-8"))["weights"]
print(f"equal weights: {fitted['equal']['value']:.3f} of {fitted['count']} pairs")
for name, alone in fitted["single"].items():
    print(f"{name} alone: {alone['value']:.3f}, weight {fitted['weights'][name]:.3f}")
print(f"fitted weights, on unseen pairs: {fitted['accuracy']['value']:.3f}")

# %% Use them. The reward of the better response should be the higher one.
reward = {
    "models": models,
    "weights": [round(fitted["weights"][name], 3) for name in models],
    "functions_dir": functions,
}
with Rewards({"reward": reward, "trainer": {"device": "cpu"}}) as rewards:
    table = rewards.score(
        [pair["prompt"] for pair in pairs],
        [[pair["chosen"], pair["rejected"]] for pair in pairs],
        references=[pair["ground_truth"] for pair in pairs],
    )
right = sum(better > worse for better, worse in table["reward"])
print(f"weights {reward['weights']} put {right} of {len(pairs)} pairs in order")
