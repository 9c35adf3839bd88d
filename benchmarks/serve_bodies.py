"""How long GET /healthz waits beside the worst bodies that `rmrl serve` takes, and the memory that
they leave.

    python -m benchmarks.serve_bodies

A server with a rule that costs nothing gets, for each wire and form, a body of 15 MiB and one with
as many values as serve.max_body_values allows: lists, keys, numbers, texts and the like. Meanwhile
/healthz is asked every 5 ms by a process of its own; the longest answer counts. Every wire is a
column, as each one checks its bodies by rules of its own. Clients and server share the machine's
cores. The result is written to results/serve_bodies.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from benchmarks.serve import Server, rounded, server
from benchmarks.serve_clients import Connection
from rmrl.config.schema.serve import ServerConfig

BODY_BYTES = 15 * 2**20
SETTLE_S = 1.0
WIRES = {
    "native": ("/v1/score", b'{"rows": [{"prompt": "p", "response": "r", "extra_info": %s}]}'),
    "trl": ("/trl", b'{"prompts": ["p"], "completions": ["c"], "extra_info": [%s]}'),
    "slime": ("/slime", b'{"prompt": "p", "response": "r", "metadata": %s}'),
    "nemo_gym": (
        "/verify",
        b'{"responses_create_params": {"input": "p"}, "response": {"output": [{"type": "message",'
        b' "role": "assistant", "content": "r"}]}, "metadata": %s}',
    ),
}
FORMS: dict[str, tuple[bytes, int]] = {
    "keys": (b'"#":0,', 2),
    "lists": (b"[],", 2),
    "objects": (b"{},", 2),
    "numbers": (b"1,", 1),
    "fractions": (b"0.#,", 1),
    "texts": (b'"",', 1),
    "long texts": (b'"%s",' % (b"a" * 60), 1),
    "escapes": (b'"%s",' % (b"\\n" * 60), 1),
    "marks in texts": (b'"%s",' % (b"[,\\\\" * 20), 1),
}
"""Name -> an entry, # being its number, and how many values, keys and lists it is."""


def value_of(form: str, values: int) -> bytes:
    """A JSON value of a form with at most so many values, and at most BODY_BYTES."""
    entry, of_entry = FORMS[form]
    parts: list[bytes] = []
    size = 0
    for number in range(values // of_entry):
        part = entry.replace(b"#", b"%d" % number)
        size += len(part)
        if size > BODY_BYTES:
            break
        parts.append(part)
    content = b"".join(parts)[:-1]
    return b'{"a":{%s}}' % content if form == "keys" else b'{"a":[%s]}' % content


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=ServerConfig().max_body_values - 100)
    parser.add_argument("--wires", nargs="*", default=list(WIRES))
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "serve_bodies.json"
    )
    given = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()}", file=sys.stderr)
    result: dict[str, Any] = {}
    with server("gsm8k", f"serve.wires=[{','.join(WIRES)}]") as running:
        first = rounded(running)["server"]
        for form in FORMS:
            for size, values in (("15 MiB", 10**9), ("as many as fit", given.values)):
                content = value_of(form, values)
                for wire in given.wires:
                    path, frame = WIRES[wire]
                    name = f"{wire}: {form}, {size}"
                    result[name] = beside(running, path, frame.replace(b"%s", content))
                    print(name, result[name], file=sys.stderr, flush=True)
        longest = max(each["longest_healthz_s"] for each in result.values())
        result["all"] = {
            "longest_healthz_s": longest,
            "mib_left": rounded(running)["server"] - first,
        }
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def beside(running: Server, path: str, body: bytes) -> dict[str, Any]:
    """Post one body while another process asks /healthz."""
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    results: Any = context.Queue()
    asking = context.Process(target=ask_health, args=(running.port, stop, results))
    asking.start()
    time.sleep(0.2)
    before = rounded(running)["server"]
    began = time.monotonic()
    code, _ = asyncio.run(posted(running.port, path, body))
    seconds = time.monotonic() - began
    time.sleep(SETTLE_S)
    stop.set()
    longest = results.get(timeout=600)
    asking.join()
    return {
        "mib": round(len(body) / 2**20, 1),
        "code": code,
        "seconds": round(seconds, 2),
        "longest_healthz_s": round(longest, 3),
        "mib_left": rounded(running)["server"] - before,
    }


async def posted(port: int, path: str, body: bytes) -> tuple[int, bytes]:
    """Send one body; return code and content."""
    connection = Connection(port)
    try:
        return await connection.request("POST", path, body)
    finally:
        connection.close()


def ask_health(port: int, stop: Event, results: Any) -> None:
    """Ask /healthz until `stop`; put the longest seconds."""

    async def asked() -> float:
        connection = Connection(port)
        longest = 0.0
        while not stop.is_set():
            began = time.monotonic()
            await connection.request("GET", "/healthz")
            longest = max(longest, time.monotonic() - began)
            await asyncio.sleep(0.005)
        connection.close()
        return longest

    results.put(asyncio.run(asked()))


if __name__ == "__main__":
    main()
