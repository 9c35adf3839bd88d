"""The class that every reward kind extends: the facts about a kind, each with a default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rmrl.config.plain_checks import field_problems
from rmrl.errors import ConfigError
from rmrl.rewards.specs.spec import NoOptions
from rmrl.rewards.specs.values import known_entries

if TYPE_CHECKING:
    from rmrl.inference.reward_engine_base import Runner
    from rmrl.rewards.dropins.dropin import DropIn
    from rmrl.rewards.kinds.shared.context import KindContext
    from rmrl.rewards.remote.spec import HTTPSpec
    from rmrl.rewards.specs.spec import RewardSpec
    from rmrl.types import ScoreItem, ScoreResult


class Kind:
    """Scores responses: `score` turns items into verdicts.

    The scorer makes one instance per reward and calls it for every batch, also for several batches
    at once. Keep nothing from a batch in `self`.
    """

    Options: ClassVar[type[Any]] = NoOptions
    """Dataclass of the entries that only this kind has."""
    roles: ClassVar[Mapping[str, Runner]] = {}
    """Role -> runner of the engine that the kind calls, e.g. {"main": "generate"}. {}: none."""
    samples: ClassVar[bool] = False
    """Takes the entry `sampling`."""
    whole_groups: ClassVar[bool] = False
    """All responses of a prompt must arrive together."""
    truncates: ClassVar[bool] = False
    """Cuts text that does not fit the model, as the entry `overlong` states."""
    further: ClassVar[Mapping[str, type[Any]]] = {}
    """Role other than main -> dataclass with the entries below the option of that name, where the
    entries differ from `FurtherModel`. A role without entries has no engine."""
    labels_of: ClassVar[str] = ""
    """Role whose model may have several labels. `label`, `label_weights` and `activation` are among
    the role's entries. "": none."""
    scores_steps: ClassVar[bool] = False
    """Its results have `steps`."""
    rates_tokens: ClassVar[bool] = False
    """Its results have `token_logprobs`, so that its engine needs `token_logprobs`."""
    calls_function: ClassVar[bool] = False
    """Scores with a function in a worker process. The function is tried on the first rows before a
    run."""
    scores_on_server: ClassVar[bool] = False
    """Scores on a reward server, which the entry `url` names."""
    asks_questions: ClassVar[bool] = False
    """Takes a server of the wires decisions and systemone."""
    reads_responses: ClassVar[bool] = True
    """Takes the entries `reads` and `per`: what it scores is a text."""
    works_in: ClassVar[str] = ""
    """Place where the kind scores without an engine or a server, for people. "": worker
    processes."""
    combines: ClassVar[bool] = False
    """Has no scores of its own: combines the scores from the rewards that `options.of` names."""

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        self._spec = spec
        self._context = context

    @classmethod
    def from_spec(cls, spec: RewardSpec, context: KindContext) -> Kind:
        """Make the kind for one reward. Raises ConfigError where the kind cannot score here."""
        return cls(spec, context)

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """Return one result per item, in order. A failure is a status with a sentence."""
        raise NotImplementedError(f"{type(self).__name__} has no score(items)")

    @classmethod
    def read_options(cls, entries: Any, where: str) -> Any:
        """Return the `Options` that a reward's entries state. Raises ConfigError with all their
        problems."""
        options = cls.Options(**known_entries(entries, cls.Options, where))
        problems = cls.problems(options, where)
        if problems:
            raise ConfigError(problems)
        return options

    @classmethod
    def problems(cls, options: Any, where: str) -> list[str]:
        """Return what is wrong with the entries: values that their fields do not allow, and what
        `check_options` finds."""
        return [*field_problems(options, f"{where}."), *cls.check_options(options, where)]

    @classmethod
    def check_options(cls, options: Any, where: str) -> list[str]:
        """Return what is wrong with the entries that no single field can say, as sentences that
        begin with `where`."""
        del options, where
        return []

    @classmethod
    def dropin_problem(cls, dropin: DropIn | None, options: Any, sampling: Any) -> str:
        """Say why the kind cannot work with this drop-in, or without a drop-in, as the end of a
        sentence. Return "" where the kind can. `sampling` is None for a kind that takes none."""
        del dropin, options, sampling
        return ""

    @classmethod
    def missing_references(cls, spec: RewardSpec, items: Sequence[ScoreItem]) -> list[str]:
        """Say why each row has nothing to compare the response with. Give "" for a row that has
        a reference."""
        del spec
        return [""] * len(items)

    @classmethod
    def server_of(cls, options: Any, where: str) -> HTTPSpec | None:
        """Return the server that does part of the work. None where no server does."""
        del options, where
        return None

    @classmethod
    def machine_problem(cls, spec: RewardSpec) -> str:
        """Say why this machine cannot score the reward. Return "" where the machine can. Called
        before a run."""
        del spec
        return ""

    @classmethod
    def machine_report(cls, spec: RewardSpec) -> str:
        """Say what scores the reward on this machine, for the log. Return "" where there is nothing
        to say."""
        del spec
        return ""

    @classmethod
    def file_content(cls, options: Any) -> str:
        """Return the content of the files that the entries name. Return "" where the entries name
        no file. The scores depend on the content, and the entries hold the path alone."""
        del options
        return ""
