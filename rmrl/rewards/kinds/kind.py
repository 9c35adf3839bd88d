"""The class that every kind of reward extends: what holds of a kind, each with a default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rmrl.rewards.specs.spec import NoOptions

if TYPE_CHECKING:
    from rmrl.inference.reward_engine_base import Runner
    from rmrl.rewards.dropins.dropin import DropIn
    from rmrl.rewards.kinds.shared.context import KindContext
    from rmrl.rewards.remote.spec import HTTPSpec
    from rmrl.rewards.specs.spec import RewardSpec
    from rmrl.types import ScoreItem, ScoreResult


class Kind:
    """A kind of reward: `score` turns responses into verdicts.

    The scorer makes one instance per reward and asks it about every batch, also about several at
    once: keep nothing of a batch in `self`.
    """

    Options: ClassVar[type[Any]] = NoOptions
    """Dataclass of the entries that only this kind has."""
    roles: ClassVar[Mapping[str, Runner]] = {}
    """Role -> runner of the engines it calls, e.g. {"main": "generate"}; {}: none."""
    samples: ClassVar[bool] = False
    """Takes the entry `sampling`."""
    whole_groups: ClassVar[bool] = False
    """All responses of a prompt must arrive together."""
    truncates: ClassVar[bool] = False
    """Cuts what does not fit the model, as the entry `overlong` states."""
    further: ClassVar[Mapping[str, type[Any]]] = {}
    """Role other than main -> dataclass of the entries below the option of its name, where it has
    others than `FurtherModel`. Without entries the role has no engine."""
    labels_of: ClassVar[str] = ""
    """Role of the model that may have several labels: `label`, `label_weights` and `activation` are
    among its entries. "": none."""
    scores_steps: ClassVar[bool] = False
    """Its results have `steps`."""
    rates_tokens: ClassVar[bool] = False
    """Its results have `token_logprobs`, so that its engine needs `token_logprobs`."""
    calls_function: ClassVar[bool] = False
    """Scores with a function in a worker process, which is tried on the first rows before a run."""
    scores_on_server: ClassVar[bool] = False
    """Scores on a reward server, which the entry `url` names."""
    works_in: ClassVar[str] = ""
    """Place where it scores without an engine or a server, for people; "": worker processes."""
    combines: ClassVar[bool] = False
    """Has no scores of its own: combines the scores of the rewards that `options.of` names."""

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        self._spec = spec
        self._context = context

    @classmethod
    def from_spec(cls, spec: RewardSpec, context: KindContext) -> Kind:
        """Make the kind of one reward. Raises ConfigError where it cannot score here."""
        return cls(spec, context)

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """Return one result per item, in order. A failure is a status with a sentence."""
        raise NotImplementedError(f"{type(self).__name__} has no score(items)")

    @classmethod
    def check_options(cls, options: Any, where: str) -> list[str]:
        """Return what is wrong with the entries, as sentences that begin with `where`."""
        del options, where
        return []

    @classmethod
    def dropin_problem(cls, dropin: DropIn | None, options: Any, sampling: Any) -> str:
        """Say why the kind cannot work with this drop-in, or without one, as the end of a sentence;
        "" where it can. `sampling`: None for a kind that takes none."""
        del dropin, options, sampling
        return ""

    @classmethod
    def missing_references(cls, spec: RewardSpec, items: Sequence[ScoreItem]) -> list[str]:
        """Say why each row has nothing to compare the response with; "" where it has."""
        del spec
        return [""] * len(items)

    @classmethod
    def server_of(cls, options: Any, where: str) -> HTTPSpec | None:
        """Return the server that does a part of the work; None where none does."""
        del options, where
        return None

    @classmethod
    def machine_problem(cls, spec: RewardSpec) -> str:
        """Say why this machine cannot score the reward; "" where it can. Tried before a run."""
        del spec
        return ""

    @classmethod
    def machine_report(cls, spec: RewardSpec) -> str:
        """Say what scores the reward on this machine, for the log; "" where nothing is to say."""
        del spec
        return ""

    @classmethod
    def file_content(cls, options: Any) -> str:
        """Return the content of the files that the entries name; "" where they name none. The
        scores depend on the content, and the entries hold the path alone."""
        del options
        return ""
