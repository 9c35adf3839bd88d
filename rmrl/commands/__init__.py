"""rmrl's commands, a file each. To add one, write a `Command` and its line in this table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmrl.registry import Registry

if TYPE_CHECKING:
    from rmrl.commands.command import Command

PURPOSES = {
    "train": "compose the configuration, check it, build the run, run it",
    "train-rm": "rows with preferences or labels in, a reward model out",
    "score": "rows with responses in, the same rows with their scores out",
    "serve": "the rewards of `rmrl score` behind HTTP",
    "eval": "a benchmark of judges and reward models in, its figures out",
    "calibrate": "rows with people's labels in, a map from scores to P(good) out",
    "compare": "two reward sections on the same rows",
    "audit": "is this reward any good, before anything is trained on it?",
    "check": "look at the rewards before a long run",
    "doctor": "is this machine ready for rmrl?",
    "show": "page through the samples of a run or a scored file, or list what there is",
    "report": "a run, or a scored file, as one HTML page that needs no network",
    "cache": "look into a cache of verdicts, and make it smaller",
    "export": "convert a training checkpoint to a Hugging Face folder",
    "migrate": "the rmrl command for a shell script that starts verl, and the differences",
}
"""Name of a command -> what it is for. `rmrl score` is the class `Score` of
rmrl/commands/score.py, `rmrl train-rm` is `TrainRm` in rmrl/commands/train_rm.py."""
COMMANDS: Registry[type[Command[Any, Any, Any]]] = Registry(
    "command",
    {
        name: f"rmrl.commands.{name.replace('-', '_')}:{name.title().replace('-', '')}"
        for name in PURPOSES
    },
)


def command_named(name: str) -> Command[Any, Any, Any]:
    """Import a command."""
    return COMMANDS[name](name, PURPOSES[name])
