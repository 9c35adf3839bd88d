"""Every error that rmrl raises on purpose, with a run's exit code that ends with it.

    RmrlError                       1
    |-- ConfigError(ValueError)     2   the configuration cannot work; all problems at once
    |   `-- OutputDirError              the output folder belongs to another run
    |-- RewardError                 3   the reward layer cannot give an honest number
    |   |-- RewardFunctionError         a drop-in lacks a function, raised, or returned the wrong
    |   |                               number of scores
    |   `-- MissingVerdictsError        more verdicts missing than reward.max_missing allows
    |-- InfrastructureError         4   a process or a device was lost
    |   |-- EngineLostError             an engine process died twice
    |   |-- EngineLoadError             an engine could not be started
    |   |-- ClusterLostError            Ray's head or node process is gone
    |   `-- MemoryPlanError(ConfigError's code 2)   the plan cannot fit the device
    |-- StallError                  5   no progress within the deadline
    |-- DataError(ValueError)       6   a file, row or column is missing or malformed
    |-- CheckpointError             6   a checkpoint is missing, torn or of another model
    |-- SweepError                      jobs of --multirun failed; the exit code of the first
    `-- Interrupted               130   the user asked the run to stop

The message is a full sentence: the value, the requirement, the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager


class RmrlError(Exception):
    """The root for all errors raised on purpose."""

    exit_code = 1


class ConfigError(RmrlError, ValueError):
    """The configuration cannot work. Carries all problems found, not only the first."""

    exit_code = 2

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        count = len(self.problems)
        head = "1 problem" if count == 1 else f"{count} problems"
        lines = "\n".join(map("- {}".format, self.problems))
        super().__init__(f"{head} in the configuration:\n{lines}")

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[str]]]:
        return type(self), (self.problems,)


class OutputDirError(ConfigError):
    """The output folder holds another run. Nothing in it was touched."""


class MemoryPlanError(ConfigError):
    """The configuration's engines do not fit the device; raised before anything is loaded."""


class RewardError(RmrlError):
    """The reward layer cannot give an honest number."""

    exit_code = 3
    scores: object = None
    """The batch's `rmrl.types.Scores`, where the error concerns verdicts of a scored batch."""


class RewardFunctionError(RewardError):
    """A user's reward function is malformed, raised, or returned too many or too few scores."""


class MissingVerdictsError(RewardError):
    """A component missed more verdicts in one step than reward.max_missing allows."""


class InfrastructureError(RmrlError):
    """A process, device or service was lost."""

    exit_code = 4


class EngineLoadError(InfrastructureError):
    """An engine process could not be started. The message quotes the engine's error."""


class EngineLostError(InfrastructureError):
    """An engine process died, was restarted once, and died again."""


class ClusterLostError(InfrastructureError):
    """The Ray cluster's head process, or the node process on the driver's machine, is gone."""


class StallError(RmrlError):
    """No progress within the deadline."""

    exit_code = 5


class DataError(RmrlError, ValueError):
    """A data file, row or column is missing or malformed."""

    exit_code = 6


class CheckpointError(RmrlError):
    """A checkpoint is missing, torn, or belongs to another model."""

    exit_code = 6


class SweepError(RmrlError):
    """A sweep's jobs failed. The others have ended."""

    def __init__(self, failed: Sequence[tuple[str, RmrlError]], jobs: int) -> None:
        """`failed`: each failed job's overrides and error, one at least, and how many jobs ran."""
        lines = [f"{len(failed)} of {jobs} jobs failed:"]
        for words, error in failed:
            sentences = f"{type(error).__name__}: {error}".replace("\n", "\n  ")
            lines.append(f"- {words}: {sentences}")
        super().__init__("\n".join(lines))
        self.exit_code = failed[0][1].exit_code


class Interrupted(RmrlError):
    """The user asked the run to stop."""

    exit_code = 130


class Problems:
    """Collects errors from independent checks, so that one message lists them all.

    Example:
        problems = Problems()
        with problems.collecting():
            files = file_list(config.data.train_files, "data.train_files")
        problems.add(config_problems(config))
        problems.raise_any()
    """

    def __init__(self) -> None:
        self._errors: list[RmrlError] = []

    def __bool__(self) -> bool:
        return bool(self._errors)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep a ConfigError, DataError, RewardError or CheckpointError from the block instead of
        raising it."""
        try:
            yield
        except (ConfigError, DataError, RewardError, CheckpointError) as error:
            self._errors.append(error)

    def add(self, sentences: Iterable[str]) -> None:
        """Add problems in the configuration."""
        lines = list(sentences)
        if lines:
            self._errors.append(ConfigError(lines))

    def raise_any(self) -> None:
        """Raise the error itself where there is one, a ConfigError with all sentences where there
        are several, nothing without errors. Errors with the same text count as one."""
        if len({str(error) for error in self._errors}) == 1:
            raise self._errors[0]
        sentences: list[str] = []
        for error in self._errors:
            if isinstance(error, ConfigError):
                sentences += error.problems
            else:
                sentences.append(str(error).replace("\n", "\n  "))
        if sentences:
            raise ConfigError(list(dict.fromkeys(sentences)))


def first_line(error: BaseException) -> str:
    """Return an error's first line. Its class's name where there is none."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0]
