"""A verifiers environment: find a secret number from 0 to 9 with a tool that compares.

The policy writes a number, and the tool answers with the way from there to the secret, such as
`2+3=` or `7-2=`; at most three times. `fail_share` is the share of calls in which the tool fails.
"""

import random
import re

import httpx
import verifiers.v1 as vf
from verifiers.v1.runtimes import ProgramResult

__all__ = ["FindNumber", "Play"]

TURNS = 3
_NUMBER = re.compile(r"-?\d+")


def number_of(text):
    match = _NUMBER.search(text or "")
    return int(match[0]) if match else None


def compared(guess, secret):
    """The tool's answer."""
    if guess is None:
        return "?"
    return f"{guess}{'+' if secret > guess else '-'}{abs(secret - guess)}="


class SecretData(vf.TaskData):
    secret: int = 0


class SecretTask(vf.Task[SecretData]):
    @vf.reward
    async def found(self, trace) -> float:
        guesses = [number_of(node.message.content) for node in trace.nodes if node.sampled]
        return float(self.data.secret in guesses)


class SecretsConfig(vf.TasksetConfig):
    count: int = 200


class FindNumber(vf.Taskset[SecretTask, SecretsConfig]):
    def load(self):
        for number in range(self.config.count):
            data = SecretData(prompt="n=", secret=number % 10, name=str(number))
            yield SecretTask(data, self.config.task)


class PlayConfig(vf.HarnessConfig):
    fail_share: float = 0.0


class Play(vf.Harness[PlayConfig]):
    """Runs in the environment's own process: no program, no sandbox."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        messages = [{"role": "user", "content": data.prompt}]
        # verify=False: the address is on the loopback, and certificates take 45 ms to load.
        async with httpx.AsyncClient(timeout=None, verify=False) as client:
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
                messages += [message, {"role": "user", "content": compared(guess, data.secret)}]
        return ProgramResult(exit_code=0, stdout="", stderr="")
