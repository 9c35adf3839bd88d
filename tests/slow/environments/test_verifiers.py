"""Training on a real environment of verifiers, whose packages are installed into an environment of
their own; and exact tokens over many turns of a real tokenizer."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from rmrl.config.schema.rollout import VerifiersConfig
from rmrl.environments.source import VerifiersSource, read_tasks
from rmrl.types import Generation, Prompt, Sampling

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[3]
ENVS = ROOT / "examples" / "agents" / "envs"
LIMIT_S = 1200.0


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python with verifiers, from the index."""
    folder = tmp_path_factory.mktemp("agents") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=LIMIT_S)
    install = [str(folder / "bin" / "pip"), "install", "--quiet", "verifiers==0.4.*"]
    subprocess.run(install, check=True, timeout=LIMIT_S)
    return folder


def play(**harness: Any) -> dict[str, Any]:
    return {
        "agent": {
            "runtime": {"type": "subprocess"},
            "harness": {"id": "find_number", **harness},
        }
    }


def train(agents: Path, folder: Path, *overrides: str, **variables: str) -> subprocess.Popen[str]:
    """The example's command."""
    places = {"AGENTS": agents, "RUN": folder / "run", "DATA": folder / "data"}
    return subprocess.Popen(
        ["bash", str(ROOT / "examples" / "agents" / "run.sh"), *overrides],
        cwd=ROOT,
        env={
            **os.environ,
            **{name: str(place) for name, place in places.items()},
            "PYTHON_BIN": sys.executable,
            **variables,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_example_trains_although_its_tool_fails(agents: Path, tmp_path: Path):
    short = ("trainer.total_training_steps=2", "trainer.test_freq=-1")
    job = train(agents, tmp_path, *short, FAIL_SHARE="0.2")
    said, _ = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0, said[-3000:]
    steps = [line for line in lines(tmp_path / "run" / "metrics.jsonl") if line.get("step", 0) > 0]
    assert [step["step"] for step in steps] == [1, 2]
    samples = lines(tmp_path / "run" / "samples.jsonl")
    failed = [sample for sample in samples if sample["env.status"] != "ok"]
    assert failed
    assert all(sample["reward"] is None and not sample["kept"] for sample in failed)
    assert all("the comparing tool is gone" in sample["env.detail"] for sample in failed)
    assert steps[0]["rollout/turns"] > 1


@pytest.mark.usefixtures("smollm2", "ms_marco")
def test_two_judges_score_beside_the_environment_as_the_readme_types_it(
    agents: Path, tmp_path: Path
):
    readme = (ROOT / "examples" / "agents" / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", readme, re.DOTALL)
    (command,) = (block for block in blocks if "heeds" in block)
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:2] == ["bash", "examples/agents/run.sh"]
    short = ("trainer.total_training_steps=1", f"trainer.default_local_dir={tmp_path}/run")
    job = train(agents, tmp_path, *words[2:], *short)
    printed, _ = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0, printed[-3000:]
    samples = lines(tmp_path / "run" / "samples.jsonl")
    assert len(samples) == 48
    for sample in samples:
        scores = {name: verdict["score"] for name, verdict in sample["scores"].items()}
        assert list(scores) == ["env.found", "heeds", "relevance"]
        # the weights of the command
        weighted = scores["env.found"] + 0.5 * scores["heeds"] + 0.2 * scores["relevance"]
        assert sample["reward"] == pytest.approx(weighted, rel=1e-5)
        for turn in sample["response"]:
            assert turn["content"] in sample["scores"]["heeds"]["rendered"]


def test_a_killed_environment_is_started_again(agents: Path, tmp_path: Path):
    job = train(agents, tmp_path, "trainer.total_training_steps=3", "trainer.test_freq=-1")
    assert job.stdout is not None
    said: list[str] = []
    killed = False
    for line in job.stdout:
        said.append(line)
        if "step 1/3" in line and not killed:
            for process in psutil.Process(job.pid).children(recursive=True):
                if "verifiers_host.py" in " ".join(process.cmdline()):
                    process.kill()
                    killed = True
    assert job.wait(LIMIT_S) == 0, "".join(said)[-3000:]
    assert killed
    assert any("starting it again" in line for line in said)
    steps = [line["step"] for line in lines(tmp_path / "run" / "metrics.jsonl") if line.get("step")]
    assert steps == [1, 2, 3]


async def test_no_token_differs_where_the_template_is_no_prefix(agents: Path, tmp_path: Path):
    """Random SmolLM2 tokens seldom survive decoding and encoding, so most turns are branches.
    `response_of` raises for every token that the engine did not draw."""
    settings = VerifiersConfig(
        env="find_number",
        args=play(),
        python=str(agents / "bin" / "python"),
        path=[str(ENVS)],
    )
    tasks = await read_tasks(settings, 20, log=tmp_path / "log")
    prompts = [
        Prompt(
            id=str(number),
            messages=[{"role": "user", "content": task["prompt"]}],
            token_ids=(1,),
            extra_info={"task": json.dumps(task)},
        )
        for number, task in enumerate(tasks)
    ]

    async def draw(tokens: Any, sampling: Sampling, trace: str) -> Generation:
        rng = np.random.default_rng(sampling.seed)
        return Generation(
            prompt_index=0,
            sample_index=0,
            text="",
            token_ids=rng.integers(20, 40_000, 6),
            logprobs=-rng.random(6),
            finish_reason="stop",
        )

    source = VerifiersSource(
        settings,
        model=str(ROOT / ".models" / "smollm2"),
        max_model_len=512,
        max_response_length=100,
        log=tmp_path / "log",
    )
    try:
        await source.start()
        rollouts = await asyncio.wait_for(
            source.generate(
                draw,
                prompts,
                Sampling(max_tokens=100, n=int(os.environ.get("RMRL_EPISODES", "5")), seed=1),
                on_finished=lambda count: None,
                on_response=lambda place, response: None,
            ),
            LIMIT_S,
        )
    finally:
        await source.close()
    turns = [
        turn
        for response in rollouts.responses
        for turn in response.turns
        if turn.role == "assistant"
    ]
    assert all(response.sampled == 6 * _turns(response) for response in rollouts.responses)
    assert len(turns) > 2 * len(rollouts.responses)
    assert any(response.branches for response in rollouts.responses)


def _turns(response: Any) -> int:
    return sum(turn.role == "assistant" for turn in response.turns)
