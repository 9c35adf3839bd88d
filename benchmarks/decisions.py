"""The probabilities of `rmrl serve` and of vLLM's server for the same questions to the same model.

    python -m benchmarks.decisions --out benchmarks/results/decisions.json

vLLM's own /v1/systemone answers for some architectures only, so the model is a random Qwen3 with the
tokenizer and chat template of SmolLM2, in float32. Both servers get the same bodies, and run one
after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import torch

from benchmarks.result_file import print_and_write
from rmrl.inference.environment import engine_environment
from rmrl.tokenizer import load_tokenizer

COLOURS = ("red", "green", "blue", "white", "black", "grey", "pink")
_START_S = 300.0


def main() -> None:
    """Ask both servers, and write the differences."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decisions", description=__doc__)
    parser.add_argument("--tokenizer", default=".models/smollm2", help="a folder with a tokenizer")
    parser.add_argument("--count", type=int, default=24, help="bodies of three questions each")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        model = write_model(Path(name) / "judge", args.tokenizer)
        bodies = [body(number) for number in range(args.count)]
        answers: dict[str, list[dict[str, Any]]] = {}
        for server, make in (("rmrl", rmrl_command), ("vllm", vllm_command)):
            with served(make(model, Path(name))) as address:
                answers[server] = [ask(address, each) for each in bodies]
    found = compared(answers["rmrl"], answers["vllm"])
    found = {
        "command": " ".join(["python -m benchmarks.decisions", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        **found,
    }
    print_and_write(found, args.out)


def write_model(folder: Path, tokenizer: str) -> Path:
    """A random Qwen3 whose next tokens differ in probability."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    read = load_tokenizer(tokenizer, trust_remote_code=False)
    config = Qwen3Config(
        vocab_size=len(read),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        initializer_range=0.1,
        tie_word_embeddings=True,
        bos_token_id=read.bos_token_id,
        eos_token_id=read.eos_token_id,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    read.save_pretrained(folder)
    return folder


def body(number: int) -> dict[str, Any]:
    """One text with a question of each kind."""
    draw = random.Random(number)
    words = " ".join(draw.choices(COLOURS, k=draw.randint(5, 60)))
    names = draw.sample(COLOURS, draw.randint(2, len(COLOURS)))
    state: Any = words if number % 2 else {"question": words, "response": names[0], "é": number}
    return {
        "model": "judge",
        "state": state,
        "instructions": "You judge." if number % 3 else None,
        "questions": {
            "right": {"type": "noul", "instructions": "Is it right?", "criteria": None},
            "colour": {
                "type": "choice",
                "instructions": "Which colour?",
                "criteria": {name: None if draw.random() < 0.5 else "a colour" for name in names},
            },
            "grade": {
                "type": "score",
                "instructions": "How good is it?",
                "criteria": [f"level {place}" for place in range(draw.randint(2, 10))],
            },
        },
    }


def rmrl_command(model: Path, folder: Path) -> list[str]:
    """Serve the model as a judge."""
    section = folder / "reward.yaml"
    spec = {"path": str(model), "kind": "generative", "score_tokens": {"yes": 1, "no": 0}}
    engine = {"name": "vllm", "dtype": "float32", "max_model_len": 2048}
    section.write_text(
        json.dumps({"models": ["judge"], "specs": {"judge": spec}, "engine": engine}),
        encoding="utf-8",
    )
    settings = [f"reward={section}", "serve.wires=[systemone]", "trainer.device=cpu"]
    return [sys.executable, "-m", "rmrl.main_serve", *settings, "serve.port={port}"]


def vllm_command(model: Path, folder: Path) -> list[str]:
    """Serve the model with vLLM's own server."""
    del folder
    given = ["--model", str(model), "--served-model-name", "judge", "--dtype", "float32"]
    given += ["--max-model-len", "2048", "--port", "{port}", "--host", "127.0.0.1"]
    given += ["--kv-cache-memory-bytes", str(2**27), "--enforce-eager"]
    return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *given]


@contextlib.contextmanager
def served(command: list[str]) -> Iterator[str]:
    """The address of a server that answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [part.replace("{port}", str(port)) for part in command]
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        environment = {**os.environ, **engine_environment(device="cpu", threads=1)}
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            started = time.monotonic()
            while not _answers(address):
                if process.poll() is not None or time.monotonic() - started > _START_S:
                    log.seek(0)
                    sys.exit(log.read()[-20000:].decode(errors="replace"))
                time.sleep(0.5)
            yield address
        finally:
            process.terminate()
            process.wait()


def _answers(address: str) -> bool:
    for path in ("/readyz", "/health"):
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{address}{path}").status_code == 200:
                return True
    return False


def ask(address: str, question: dict[str, Any]) -> dict[str, Any]:
    """The server's answer to a body."""
    answer = httpx.post(f"{address}/v1/systemone", json=question, timeout=300.0)
    if answer.status_code != 200:
        sys.exit(f"{address}: {answer.status_code} {answer.text}")
    return answer.json()


def compared(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, Any]:
    """The largest differences of all numbers, and how often the rest is equal."""
    probability = mass = 0.0
    equal = count = tokens = 0
    spread: list[float] = []
    for mine, other in zip(ours, theirs, strict=True):
        tokens += int(mine["usage"] == other["usage"])
        for name, answer in mine["answers"].items():
            count += 1
            peer = other["answers"][name]
            for label, share in answer["probabilities"].items():
                probability = max(probability, abs(share - peer["probabilities"][label]))
            spread.append(max(peer["probabilities"].values()))
            masses = [each["diagnostics"][name]["label_mass"] for each in (mine, other)]
            mass = max(mass, abs(masses[0] - masses[1]) / masses[1])
            first, second = mine["diagnostics"][name], other["diagnostics"][name]
            equal += int(first["argmax_is_label"] == second["argmax_is_label"])
    return {
        "questions": count,
        "largest_difference_of_probabilities": probability,
        "largest_relative_difference_of_label_mass": mass,
        "equal_argmax_is_label": equal,
        "bodies_with_equal_usage": tokens,
        "likeliest_answer_at_least_at_most": [min(spread), max(spread)],
    }


if __name__ == "__main__":
    main()
