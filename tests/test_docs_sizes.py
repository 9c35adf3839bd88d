"""The page about sizes: its command composes, and its memory plan is the one that rmrl makes."""

from __future__ import annotations

import json
import logging
import re
import shlex
import struct
from pathlib import Path

import pytest

from rmrl.assemble.resolve import resolve
from rmrl.cluster.devices import Devices, Machine
from rmrl.cluster.gpu import Gpu
from rmrl.config.check import config_problems
from rmrl.config.load import compose_config
from rmrl.config.schema import Config
from rmrl.trainer.check_place import fill_processes
from rmrl.trainer.check_run import _check_memory
from rmrl.trainer.plan import Extras
from rmrl.trainer.step_estimate import announced

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "to-7b.md"
MODEL = "Qwen/Qwen2.5-7B-Instruct"
GIB = 2**30
SHAPE = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
"""Published shape of Qwen2.5-7B-Instruct."""


def command() -> list[str]:
    """Words of the command of the page."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (line,) = [block for block in blocks if block.startswith("rmrl train")]
    return shlex.split(line.replace("\\\n", " "))


def headers_of_7b(folder: Path) -> Path:
    """A checkpoint of that shape whose weights are a hole in the file."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(SHAPE), encoding="utf-8")
    hidden, inner, kv = 3584, 18944, 512
    shapes = {"model.embed_tokens.weight": [152064, hidden], "lm_head.weight": [152064, hidden]}
    shapes["model.norm.weight"] = [hidden]
    for layer in range(28):
        at = f"model.layers.{layer}"
        for name, width in (("q", hidden), ("k", kv), ("v", kv)):
            shapes[f"{at}.self_attn.{name}_proj.weight"] = [width, hidden]
            shapes[f"{at}.self_attn.{name}_proj.bias"] = [width]
        shapes[f"{at}.self_attn.o_proj.weight"] = [hidden, hidden]
        shapes[f"{at}.mlp.gate_proj.weight"] = [inner, hidden]
        shapes[f"{at}.mlp.up_proj.weight"] = [inner, hidden]
        shapes[f"{at}.mlp.down_proj.weight"] = [hidden, inner]
        shapes[f"{at}.input_layernorm.weight"] = [hidden]
        shapes[f"{at}.post_attention_layernorm.weight"] = [hidden]
    entries, end = {}, 0
    for name, shape in shapes.items():
        size = 2
        for length in shape:
            size *= length
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    header = json.dumps(entries).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + end)
    return folder


def composed(path: Path) -> Config:
    words = [word.replace(MODEL, str(path)) for word in command()]
    assert words[:2] == ["rmrl", "train"]
    config = compose_config(words[2:])
    assert config_problems(config) == []
    return config


def test_the_memory_plan_of_the_page_is_what_rmrl_makes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = headers_of_7b(tmp_path / "Qwen2.5-7B-Instruct")
    config = composed(path)
    resolved = resolve(
        config.reward,
        device="cuda",
        shipped_functions=ROOT / "reward_functions",
        trust_remote_code=False,
    )
    assert resolved.problems == []
    card = Gpu(total_bytes=80 * GIB, free_bytes=79 * GIB, name="NVIDIA H100 80GB HBM3")
    gpus = (card,) * 8
    machine = Machine(gpus=gpus, host_free_bytes=512 * GIB, shared_memory_bytes=256 * GIB)
    devices = Devices(kind="cuda", machines=(machine,))
    fill_processes(config, devices)
    caplog.set_level(logging.INFO)
    engines, plan = _check_memory(config, resolved.specs, devices, extras=Extras())
    estimate = announced(config, engines, resolved.specs, gpu=devices.gpu_name(), transport="ipc")
    shown = plan.table().replace(str(path), "Qwen2.5-7B-Instruct")
    page = PAGE.read_text(encoding="utf-8")
    assert shown in page, shown
    choices = ("gpu_memory_utilization=", "the fastest that fits")
    lines = [line for line in caplog.messages if any(choice in line for choice in choices)]
    assert len(lines) == 3
    assert "\n".join(lines) in page, lines
    assert estimate.startswith("a step takes")
    assert estimate in page, estimate
