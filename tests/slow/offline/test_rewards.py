"""`from rmrl import Rewards` with an engine of transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.offline.test_rewards import ROOT

ENGINES = """
import json, logging, sys
import psutil
from rmrl import Rewards
config = json.loads(sys.argv[1])
logging.basicConfig(level=logging.INFO)
with Rewards(config) as rewards:
    table = rewards.score(["How many?", "Where?"], [["Seven.", "No."], "Here."])
    during = [child.pid for child in psutil.Process().children(recursive=True)]
left = [pid for pid in during if psutil.pid_exists(pid)]
print(json.dumps({"rewards": table["reward"], "ray": "ray" in sys.modules, "during": len(during),
                  "left": left}))
"""


def test_an_engine_of_transformers_needs_no_ray_and_ends_with_the_block(
    tiny_reward_llama: Path,
) -> None:
    spec = {"kind": "bradley_terry", "path": str(tiny_reward_llama)}
    config = {
        "reward": {
            "models": ["quality"],
            "specs": {"quality": spec},
            "engine": {"name": "hf", "dtype": "float32", "threads": 1},
        },
        "trainer": {"device": "cpu"},
    }
    done = subprocess.run(
        [sys.executable, "-c", ENGINES, json.dumps(config)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert not result["ray"]
    assert result["during"] >= 1
    assert result["left"] == []
    assert [type(value) for value in result["rewards"]] == [list, float]
