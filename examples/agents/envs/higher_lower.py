"""A verifiers environment: find a secret number from 0 to 9 with a tool that compares.

The policy writes a number, the tool answers "higher", "lower" or "?" (no number), at most three
times. Three guesses find seven of the ten numbers at best. `fail_share` makes the tool fail.
"""

import random
import re

import httpx
import verifiers.v1 as vf
from verifiers.v1.runtimes import ProgramResult

__all__ = ["HigherLower", "Play"]

TURNS = 3
_NUMBER = re.compile(r"-?\d+")


def number_of(text):
    match = _NUMBER.search(text or "")
    return int(match[0]) if match else None


class SecretData(vf.TaskData):
    secret: int = 0


class SecretTask(vf.Task[SecretData]):
    def guesses(self, trace):
        return [number_of(node.message.content) for node in trace.nodes if node.sampled]

    @vf.reward
    async def found(self, trace) -> float:
        return float(self.data.secret in self.guesses(trace))

    @vf.reward(weight=0.0)
    async def near(self, trace) -> float:
        """How near the last guess is, from 0 to 1."""
        last = (self.guesses(trace) or [None])[-1]
        return 0.0 if last is None else max(0.0, 1 - abs(last - self.data.secret) / 10)


class SecretsConfig(vf.TasksetConfig):
    count: int = 200


class HigherLower(vf.Taskset[SecretTask, SecretsConfig]):
    def load(self):
        for number in range(self.config.count):
            data = SecretData(
                prompt="Find my number, 0 to 9.", secret=number % 10, name=str(number)
            )
            yield SecretTask(data, self.config.task)


class PlayConfig(vf.HarnessConfig):
    fail_share: float = 0.0


class Play(vf.Harness[PlayConfig]):
    """Runs in the environment's own process: no program, no sandbox."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        messages = [{"role": "user", "content": data.prompt}]
        async with httpx.AsyncClient(timeout=None) as client:
            for _ in range(TURNS):
                reply = await client.post(
                    f"{endpoint}/chat/completions",
                    headers={"Authorization": f"Bearer {secret}"},
                    json={"model": ctx.model, "messages": messages},
                )
                if reply.status_code != 200:
                    break
                message = reply.json()["choices"][0]["message"]
                guess = number_of(message["content"])
                if guess == data.secret:
                    break
                if random.random() < self.config.fail_share:
                    raise ConnectionError("the comparing tool is gone")
                answer = "?" if guess is None else "higher" if guess < data.secret else "lower"
                messages += [message, {"role": "user", "content": answer}]
        return ProgramResult(exit_code=0, stdout="", stderr="")
