"""What a driver has imported before its first step, by name: no clock is read."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rmrl.data.write import write_rows
from rmrl.startup import quick_imports

ROOT = Path(__file__).parent.parent

WHEN_NEEDED = {
    # Stage of a driver of rules alone -> what it may not have imported by its end.
    "checks imported": (
        "matplotlib", "pandas", "ray", "scipy", "sklearn", "torch", "transformers", "vllm",
    ),
    "prompts read": ("matplotlib", "pandas", "ray", "sklearn", "scipy.stats", "vllm"),
    "ready to start processes": (
        "datasets", "matplotlib", "pandas", "scipy.stats", "sentence_transformers", "sklearn",
        "tensorboard", "torch.utils.tensorboard", "torchvision", "vllm", "wandb",
    ),
}  # fmt: skip
DRIVER = """
import json, sys
from rmrl import main_ppo
from rmrl.startup import quick_imports

stages, names, tokenizer, rows = {}, *json.load(sys.stdin)

def stage_ends(stage):
    stages[stage] = [name for name in names[stage] if name in sys.modules]

with quick_imports():
    import rmrl.trainer.check_run
stage_ends("checks imported")
from rmrl.config.schema import DataConfig
from rmrl.data.dataset import load_prompts
from rmrl.tokenizer import load_tokenizer
loaded = load_tokenizer(tokenizer, trust_remote_code=False)
data = DataConfig(train_files=rows, max_prompt_length=64)
assert len(load_prompts(data, loaded, split="train")) == 4
stage_ends("prompts read")
with quick_imports():
    import rmrl.trainer.build_run, rmrl.trainer.loop
stage_ends("ready to start processes")
print("STAGES" + json.dumps(stages))
"""


def run(program: str, text: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_driver_imports_libraries_when_it_needs_them(tiny_llama: Path, tmp_path: Path) -> None:
    question = {"role": "user", "content": "count"}
    rows = [{"prompt": [question], "data_source": "counting"} for _ in range(4)]
    write_rows(tmp_path / "rows.parquet", rows, overwrite=True)
    case = [WHEN_NEEDED, str(tiny_llama), str(tmp_path / "rows.parquet")]
    printed = run(DRIVER, json.dumps(case)).partition("STAGES")[2]
    assert json.loads(printed) == {stage: [] for stage in WHEN_NEEDED}


def test_a_postponed_function_is_imported_at_its_first_call() -> None:
    printed = run(
        "import sys\n"
        "from rmrl.startup import quick_imports\n"
        "with quick_imports():\n"
        "    from transformers.generation.candidate_generator import roc_curve\n"
        "print('sklearn' in sys.modules, 'sklearn.metrics' in sys.modules)\n"
        "print(roc_curve([0, 1], [0.1, 0.9])[1].tolist())\n"
        "import sklearn.metrics\n"
        "print(sklearn.metrics.f1_score([1], [1]))\n"
    )
    assert printed.splitlines() == ["False False", "[0.0, 1.0, 1.0]", "1.0"]


def broken() -> None:
    with quick_imports():
        assert not gc.isenabled()
        raise ImportError("broken")


@pytest.mark.parametrize("collects", [True, False])
def test_collection_and_finders_are_as_before_even_after_an_error(collects: bool) -> None:
    finders = list(sys.meta_path)
    was_enabled = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        with pytest.raises(ImportError, match="broken"):
            broken()
        assert gc.isenabled() is collects
    finally:
        (gc.enable if was_enabled else gc.disable)()
    assert sys.meta_path == finders
