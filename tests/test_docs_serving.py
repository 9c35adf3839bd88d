"""The curl lines of docs/serving.md run as printed against a server with the page's rewards."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rmrl.config.load import compose_config, shipped
from rmrl.config.schema import ServeConfig
from rmrl.offline.open_scorer import open_scorer
from rmrl.serve.check_serve import check_serve
from rmrl.serve.run_server import serve
from rmrl.serve.service import Service

PAGE = Path(__file__).resolve().parent.parent / "docs" / "serving.md"


def blocks() -> list[str]:
    text = PAGE.read_text(encoding="utf-8").partition("## Wires for other trainers")[0]
    return re.findall(r"```bash\n(.*?)```", text, re.DOTALL)


def commands() -> list[str]:
    """Each curl command with its body, which may go over several lines."""
    found: list[str] = []
    for block in blocks():
        for start in re.split(r"^(?=curl )", block, flags=re.MULTILINE):
            if start.startswith("curl "):
                found.append(start.strip())
    return found


def test_the_page_has_commands() -> None:
    assert len(commands()) == 6
    overrides = [line for block in blocks() for line in block.splitlines() if "rmrl serve" in line]
    for line in overrides:
        compose_config(line.split()[2:], ServeConfig)  # every key exists


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_commands_of_the_page_run_as_printed() -> None:
    config = compose_config(
        ["reward.models=[gsm8k]", "trainer.device=cpu", "serve.port=0", "reward.rule_workers=1"],
        ServeConfig,
    )
    checked = check_serve(config, shipped_functions=shipped("reward_functions"))
    listening: asyncio.Queue[tuple[Service, int]] = asyncio.Queue()
    stop = asyncio.Event()
    task = asyncio.create_task(
        serve(
            checked,
            lambda: open_scorer(checked.scoring),
            on_listening=lambda service, port: listening.put_nowait((service, port)),
            stop=stop,
        )
    )
    async with asyncio.timeout(300):
        service, port = await listening.get()
        while service.refusal() is not None:
            await asyncio.sleep(0.02)
    outputs: list[str] = []
    for command in commands():
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", command.replace(":8765", f":{port}")],
            capture_output=True,
            text=True,
            timeout=300,
            env={"PATH": "/usr/bin:/bin:/usr/local/bin", "RMRL_SERVE_TOKEN": "t"},
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    stop.set()
    await task
    shown = re.search(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    assert json.loads(outputs[0]) == json.loads(shown[1])
    *rows, last = [json.loads(line) for line in outputs[1].splitlines()]
    rewards = {row["index"]: row["reward"] for row in rows}
    assert rewards == {0: 1.0, 1: [1.0, 0.0]}
    assert last["summary"]["responses"] == 3
    assert json.loads(outputs[2])["rewards"][0]["name"] == "gsm8k"
    assert json.loads(outputs[3]) == json.loads(outputs[5]) == {"status": "ready", "reasons": []}
    assert "rmrl_rows_total 4.0" in outputs[4]
