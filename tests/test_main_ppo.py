"""What a user mistypes is one sentence and an exit code, before Ray is imported and before anything
is written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.load import compose_config
from rmrl.data.write import write_rows
from rmrl.trainer.output_dir import claim
from tests.inputs import rule

LONG = "a prompt of more than forty characters, so that it is too long"


@dataclass(frozen=True, slots=True)
class Mistake:
    """Overrides on top of a command line that works, the exit code, and what the message must
    say."""

    overrides: dict[str, object]
    code: int
    words: tuple[str, ...]


MISTAKES = {
    "weights": Mistake(
        {"reward.models": "[gsm8k,math_verify]", "reward.weights": "[1.0]"}, 2, ("reward.weights has 1 value for 2 models",)
    ),
    "reward name": Mistake({"reward.models": "[gsm8]"}, 2, ("gsm8", "did you mean 'gsm8k'")),
    "unknown key": Mistake({"trainer.sed": 1}, 2, ("trainer.sed", "did you mean 'seed'")),
    "wrong type": Mistake({"trainer.seed": "one"}, 2, ("trainer.seed",)),
    "checkpoint": Mistake({"actor_rollout_ref.model.path": "{tmp}/nothing/here"}, 2, ("actor_rollout_ref.model.path", "nothing/here")),
    "group of one": Mistake(
        {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.rollout.n": 1}, 2, ("actor_rollout_ref.rollout.n=1", "use n >= 2")
    ),
    "logger": Mistake({"trainer.logger": "[consol]"}, 2, ("consol", "did you mean 'console'")),
    "estimator": Mistake({"algorithm.adv_estimator": "grpoo"}, 2, ("grpoo", "did you mean 'grpo'")),
    "two at once": Mistake({"reward.models": "[gsm8]", "trainer.device": "tpu"}, 2, ("2 problems", "gsm8", "tpu")),
    "batch": Mistake({"data.train_batch_size": 64}, 2, ("data.train_batch_size=64", "only 8 prompts")),
    "memory": Mistake({"trainer.memory_budget_gb": 0.01}, 2, ("the memory plan does not fit", "trainer.memory_budget_gb")),
    "file": Mistake({"data.train_files": "{tmp}/none.parquet"}, 6, ("none.parquet",)),
    "column": Mistake({"data.prompt_key": "question"}, 6, ("question", "rows.parquet")),
    "overlong": Mistake({"data.train_files": "{tmp}/long.parquet"}, 6, ("long.parquet", "data.max_prompt_length")),
    "empty": Mistake({"data.train_files": "{tmp}/empty.jsonl"}, 6, ("empty.jsonl",)),
    "resume path": Mistake(
        {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": "{tmp}/step_9"}, 6, ("step_9", "has no manifest.json")
    ),
    "other run": Mistake({"trainer.default_local_dir": "{tmp}/taken", "trainer.seed": 5}, 2, ("trainer.seed: 1 there, 5 here", "taken")),
    "rounds": Mistake(
        {"data.prompt_key": "question", "trainer.seed": 5, "trainer.default_local_dir": "{tmp}/taken", "actor_rollout_ref.rollout.top_p": 3,
         "reward.models": "[raises]", "reward.functions_dir": "{tmp}"},
        2, ("question", "only the columns prompt, reward_model", "trainer.seed: 1 there, 5 here"),
    ),
    "rule that raises": Mistake(
        {"reward.models": "[raises]", "reward.functions_dir": "{tmp}"},
        2, ("reward 'raises' gave no verdict on", "trial responses (user_error)", "ZeroDivisionError", "raises.py:2"),
    ),
    "no server": Mistake(
        {"reward.models": "[judge]", "reward.specs.judge.kind": "remote", "reward.specs.judge.wire": "openrlhf",
         "reward.specs.judge.url": "http://127.0.0.1:9/score"},
        2, ("reward 'judge': no server answers at http://127.0.0.1:9/score", "start the server"),
    ),
    "length of the model": Mistake({"data.max_response_length": 100_000}, 2, ("= 100040 tokens", "was made for", "lower one of them")),
    "weights of 0": Mistake({"reward.weights": "[0]"}, 2, ("reward.weights=[0.0]: all are 0",)),
    "a language model as scalar": Mistake(
        {"reward.models": "[quality]", "reward.specs.quality.kind": "bradley_terry", "reward.specs.quality.path": "{tmp}/other"},
        2, ("is a LlamaForCausalLM", "use kind=generative"),
    ),
    "strangers folder": Mistake({"trainer.default_local_dir": "{tmp}/thesis"}, 2, ("not empty", "chapter.tex")),
}  # fmt: skip

GROUPS = {"algorithm.adv_estimator": "grpo"}
ACTOR = "actor_rollout_ref.actor"
TRAINING = {
    "critic path": Mistake({"critic.model.path": "{tmp}/nothing/here"}, 2, ("critic.model.path", "nothing/here' is not a folder")),
    "critic vocabulary": Mistake({"critic.model.path": "{tmp}/other"}, 2, ("critic.model.path has a vocabulary of 999 tokens", "1024")),
    "no critic": Mistake({"critic.enable": False}, 2, ("algorithm.adv_estimator=gae needs a critic", "adv_estimator=grpo")),
    "critic pool": Mistake({"critic.pool": "values"}, 2, ("critic.pool=values: no such pool", "trainer.resource_pools.values")),
    "staleness": Mistake({**GROUPS, "trainer.max_staleness": 1}, 2, ("trainer.max_staleness=1", "or max_staleness=0")),
    "recipe": Mistake({"+recipe": "dapoo"}, 2, ("recipe=dapoo", "did you mean 'dapo'", "known: cispo")),
    "filters of one": Mistake(
        {"+recipe": "dapo", "algorithm.adv_estimator": "reinforce_plus_plus", "actor_rollout_ref.rollout.n": 1},
        2, ("rollout.n=1 with algorithm.filter_groups.enable=True", "no group has contrast"),
    ),
    "filter metric": Mistake(
        {**GROUPS, "algorithm.filter_groups.enable": True, "algorithm.filter_groups.metric": "gsm8"},
        2, ("algorithm.filter_groups.metric=gsm8", "did you mean 'gsm8k'"),
    ),
    "loss": Mistake({**GROUPS, "actor_rollout_ref.actor.policy_loss.loss_mode": "gspoo"}, 2, ("loss_mode", "did you mean 'gspo'")),
    "layout": Mistake(
        {
            **GROUPS, "actor_rollout_ref.actor.strategy": "megatron", "trainer.n_gpus_per_node": 6,
            "actor_rollout_ref.actor.megatron.tensor_model_parallel_size": 3, "actor_rollout_ref.actor.fsdp_config.fsdp_size": 2,
        },
        2, ("tensor_model_parallel_size=3 does not divide the model's num_attention_heads=4", "fsdp_config.fsdp_size=2 has no effect"),
    ),
    "layout of a critic": Mistake(
        {"actor_rollout_ref.actor.strategy": "megatron", "critic.strategy": "fsdp2"},
        2, ("critic.strategy=fsdp2 and actor_rollout_ref.actor.strategy=megatron", "critic.pool=<pool>"),
    ),
    "one row": Mistake({**GROUPS, "data.train_files": "{tmp}/one.parquet"}, 2, ("data.train_batch_size=4", "only 1 prompt")),
    "one long row": Mistake(
        {**GROUPS, "data.train_files": "{tmp}/one_long.parquet"}, 6, ("row 7", "data.filter_overlong_prompts=True", "data.truncation=left")
    ),
    "shard groups": Mistake(
        {**GROUPS, f"{ACTOR}.fsdp_config.fsdp_size": 32},
        2, (f"{ACTOR}.fsdp_config.fsdp_size=32 does not divide", "the 1 training process"),
    ),
    "shard groups of a critic": Mistake(
        {"critic.fsdp_config.fsdp_size": 3}, 2, ("critic.fsdp_config.fsdp_size=3 does not divide",)
    ),
    "processes": Mistake(
        {**GROUPS, "trainer.n_gpus_per_node": 4096},
        2, ("trainer.n_gpus_per_node=4096", "CPU cores", "or leave it out"),
    ),
    "parts of the rollout engine": Mistake(
        {**GROUPS, "actor_rollout_ref.rollout.tensor_parallel_size": 4096},
        2, ("tensor_parallel_size=4096 starts a process", "leave it out"),
    ),
    "folder and data": Mistake(
        {"trainer.default_local_dir": "{tmp}/thesis", "data.train_files": "{tmp}/one.parquet"},
        2, ("2 problems", "chapter.tex", "data.train_batch_size=4", "only 1 prompt"),
    ),
    "not JSON": Mistake({**GROUPS, "data.train_files": "{tmp}/broken.jsonl"}, 6, ("broken.jsonl line 1", "is not JSON")),
}  # fmt: skip
"""Of the ways to train."""
MISTAKES |= TRAINING

RUNNER = """
import contextlib, io, json, sys
from rmrl.main_ppo import main
cases = json.load(sys.stdin)
done = {}
for name, arguments in cases.items():
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = main(arguments)
    done[name] = {"code": code, "said": said.getvalue(), "heavy": [m for m in ("ray", "vllm") if m in sys.modules]}
print("RESULT" + json.dumps(done))
"""


def arguments(tmp: Path, policy: Path, changed: dict[str, object]) -> list[str]:
    keys: dict[str, object] = {
        "data.train_files": tmp / "rows.parquet",
        "data.train_batch_size": 4,
        "data.max_prompt_length": 40,
        "data.max_response_length": 8,
        "actor_rollout_ref.model.path": policy,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 4,
        "actor_rollout_ref.rollout.n": 2,
        "reward.models": "[gsm8k]",
        "trainer.device": "cpu",
        "trainer.n_gpus_per_node": 1,
        "trainer.total_training_steps": 1,
        "trainer.default_local_dir": tmp / "out",
    }
    return [
        f"{key}={str(value).replace('{tmp}', str(tmp))}"
        for key, value in {**keys, **changed}.items()
    ]


def files(tmp: Path) -> dict[str, bytes]:
    return {str(p.relative_to(tmp)): p.read_bytes() for p in tmp.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> dict[str, Any]:
    """Every mistake in one process, since imports take longer than everything else; and what was
    written."""
    tmp = tmp_path_factory.mktemp("mistakes")
    rows = [
        {
            "prompt": [{"role": "user", "content": f"{i} + 1?"}],
            "reward_model": {"ground_truth": "1"},
        }
        for i in range(8)
    ]
    write_rows(tmp / "rows.parquet", rows, overwrite=True)
    write_rows(
        tmp / "long.parquet",
        [{**rows[0], "prompt": [{"role": "user", "content": LONG}]}] * 8,
        overwrite=True,
    )
    write_rows(tmp / "one.parquet", rows[:1], overwrite=True)
    write_rows(
        tmp / "one_long.parquet",
        [*rows[:7], {"prompt": [{"role": "user", "content": "word " * 5000}]}],
        overwrite=True,
    )
    (tmp / "empty.jsonl").touch()
    (tmp / "broken.jsonl").write_text('{"prompt": [\n')
    shutil.copytree(tiny_llama, tmp / "other")
    shape = json.loads((tmp / "other" / "config.json").read_text())
    (tmp / "other" / "config.json").write_text(json.dumps({**shape, "vocab_size": 999}))
    (tmp / "raises.py").write_text(rule("return 1 / 0"))
    (tmp / "thesis").mkdir()
    (tmp / "thesis" / "chapter.tex").write_text("x")
    taken = arguments(tmp, tiny_llama, {"trainer.default_local_dir": "{tmp}/taken"})
    claim(tmp / "taken", config=compose_config(taken), config_text="", resume_mode="auto").close()
    (tmp / "taken" / "metrics.jsonl").write_text('{"step": 1}\n')
    before = files(tmp)
    cases = {name: arguments(tmp, tiny_llama, m.overrides) for name, m in MISTAKES.items()}
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        cwd=tmp,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=300,
    )
    result = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert result, done.stderr[-3000:]
    return {
        "cases": json.loads(result[-1].removeprefix("RESULT")),
        "before": before,
        "after": files(tmp),
    }


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_a_sentence_and_an_exit_code(outcomes: dict[str, Any], name: str) -> None:
    outcome, mistake = outcomes["cases"][name], MISTAKES[name]
    assert outcome["code"] == mistake.code, outcome["said"]
    for words in mistake.words:
        assert words in outcome["said"]
    assert "Traceback" not in outcome["said"]


def test_no_mistake_needed_ray_or_an_engine(outcomes: dict[str, Any]) -> None:
    assert {name: o["heavy"] for name, o in outcomes["cases"].items() if o["heavy"]} == {}


def test_nothing_was_written(outcomes: dict[str, Any]) -> None:
    assert outcomes["after"] == outcomes["before"]
