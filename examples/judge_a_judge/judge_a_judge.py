"""Is a judge to be trusted? See README.md."""

# %% Twelve pairs that a person labelled, and what three judges wrote about them in both orders.
import json
import sys
import tempfile
from pathlib import Path

from rmrl.main_eval import main as rmrl_eval

HERE = Path(__file__).resolve().parent
out = Path(tempfile.mkdtemp()) / "eval"

# %% Read the verdicts out of the texts, and compare them with the labels.
code = rmrl_eval(
    [
        "eval.format=pairs",
        f"data.files={HERE / 'pairs.jsonl'}",
        f"eval.recorded={HERE / 'verdicts.jsonl'}",
        f"out={out}",
    ]
)
if code:
    sys.exit(code)
report = json.loads((out / "report.json").read_text(encoding="utf-8"))

# %% How often is each judge right? The interval says what twelve pairs can tell at all.
for name, judge in report["judges"].items():
    accuracy = judge["accuracy"]
    print(f"{name}: {accuracy['value']:.3f}, {accuracy['low']:.3f} to {accuracy['high']:.3f}")

# %% Is it right because it has understood? Blind controls know nothing about the texts.
for name, control in report["controls"].items():
    print(f"control {name}: {control['accuracy']['value']:.3f}")

# %% Does it stay with its verdict when the order of the responses is swapped?
for name, judge in report["judges"].items():
    print(f"{name}: the same in both orders {judge['position']['consistent']['value']:.3f}")

# %% What did it get wrong? outcomes.jsonl has a row per judge and pair.
with (out / "outcomes.jsonl").open(encoding="utf-8") as file:
    for line in file:
        row = json.loads(line)
        if not row["control"] and row["judge"] == "careful" and row["credit"] < 1:
            print(row)
