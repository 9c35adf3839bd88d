"""One reward, fully resolved: its kind, its model, and its verdicts' weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmrl.config.numbers import is_number
from rmrl.config.schema.fields import at_least, fraction
from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import EngineSpec
from rmrl.rewards.dropins.dropin import DropIn, FunctionSource
from rmrl.rewards.reads.setting import Reads
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.rewards.specs.labels import LabelReading
from rmrl.types import Sampling

WHOLE_PROMPT = "conversation"
MISSING_POLICIES = ("mask", "renormalize", "impute", "fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class OnMissing:
    """What happens to a row with a missing verdict."""

    policy: str = "mask"
    """mask: the row has no reward. renormalize: the other weights are rescaled for the row. impute:
    `value` stands in. fail: the run stops."""
    value: float | None = None

    @classmethod
    def parse(cls, raw: Any, *, where: str) -> OnMissing:
        """Read "mask", "renormalize", "fail" or {"impute": number}. Raises ConfigError naming
        `where`."""
        if isinstance(raw, str) and raw in MISSING_POLICIES and raw != "impute":
            return cls(policy=raw)
        if isinstance(raw, dict) and set(raw) == {"impute"}:
            value = raw["impute"]
            if is_number(value):
                return cls(policy="impute", value=float(value))
        raise ConfigError(
            f"{where}={raw!r}: give mask, renormalize, fail, or {{impute: <number>}} with the"
            " number typed out"
        )

    def __str__(self) -> str:
        if self.value is not None:
            return f"impute {self.value:g}"
        return self.policy


@dataclass(frozen=True, slots=True)
class SourceWeights(Mapping[str, float]):
    """data_source -> weight for one reward. An unlisted source has other rewards."""

    named: Mapping[str, float | None]
    """None: this source has other rewards."""
    default: float | None
    """Weight for all sources that `named` does not have."""

    def __getitem__(self, source: str) -> float:
        weight = self.named.get(source, self.default)
        if weight is None:
            raise KeyError(source)
        return weight

    def unweighted(self) -> SourceWeights:
        """Return the same sources with the weight 0."""
        named: dict[str, float | None] = {
            source: None if weight is None else 0.0 for source, weight in self.named.items()
        }
        return SourceWeights(named, None if self.default is None else 0.0)

    def __iter__(self) -> Iterator[str]:
        return (source for source, weight in self.named.items() if weight is not None)

    def __len__(self) -> int:
        return len(self.named) - list(self.named.values()).count(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """When a reward with weight 0 that only watches is asked."""

    rows: float = fraction(1.0)
    """Share of the responses that the reward is asked about, above 0 and at most 1."""
    every: int = at_least(1, least=1)
    """The reward is asked in the steps whose number this divides."""
    validation: bool = False
    """Whether the reward is asked about all validation responses. False: about none of them."""

    def __str__(self) -> str:
        steps = "" if self.every == 1 else f", every {self.every} steps"
        return f"watched: {self.rows:.3g} of the rows{steps}"


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options for a kind without its own entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSpec:
    """One component of the reward. `index` is its position among the rewards (for rm_prompt_<i>:
    among the model rewards)."""

    name: str
    kind: str
    weight: float
    model_index: int = -1
    """Position among the model rewards (picks rm_prompt_<i>). -1 for other rewards."""
    rm_prompt: str | None = None
    """Key of the rm_prompt column with precedence over all others: "0" is rm_prompt_0. None: name
    and position decide. WHOLE_PROMPT: the prompt with all of its turns."""
    combine_op: str = "add"
    on_missing: OnMissing = field(default_factory=OnMissing)
    overlong: str = "missing"
    """Part that is cut from an input that does not fit the model's context."""
    reads: Reads = field(default_factory=Reads)
    """The part of the response that the reward reads."""
    whole_groups: bool = False
    """All responses to a prompt are scored in one call, even if the kind does not require it."""
    timeout_s: float = 600.0
    preset: str = ""
    """The catalogue preset that the reward comes from. "": none."""
    dropin: DropIn | None = None
    """rm_preprocess / rm_postprocess for a model reward."""
    function: FunctionSource | None = None
    """Source from which workers load a rule's function."""
    options: Any = field(default_factory=NoOptions)
    """The kind's own entries: an instance of its `Options`."""
    sampling: Sampling | None = None
    engines: Mapping[str, EngineSpec] = field(default_factory=dict)
    """Role -> engine. `main` is the reward's own `path`. A kind may have other roles."""
    labels: LabelReading | None = None
    """How a head's labels become a score, for the model in the role that the kind's `labels_of`
    names. None: the head is a plain scalar, or there is no head."""
    remote: HTTPSpec | None = None
    """Server that answers instead of, or besides, local engines."""
    residency: str = "auto"
    put_away: str = "auto"
    load_timeout_s: float = 900.0
    transforms: tuple[Mapping[str, Any], ...] = ()
    """Each transform's entries in order, `kind` among them. The entries are checked."""
    gates: tuple[str, ...] = ()
    """Components whose gates must be open. On other rows this component is not scored at all."""
    counts_at: Mapping[str, float] = field(default_factory=dict)
    """Component -> the score it must have for this component to count as it is. On other rows this
    component counts 0."""
    sources: SourceWeights | None = None
    """data_source -> weight. None: every row, with `weight`."""
    watch: Watch | None = None
    """Set: the reward has weight 0 and is asked about a share of the rows."""
    part_of: str = ""
    """The ensemble that the reward was resolved for. Such a part has no weight of its own and stays
    out of the sum."""

    @property
    def engine(self) -> EngineSpec | None:
        return self.engines.get("main")

    @property
    def needs_model(self) -> bool:
        """True for a model reward, local or remote, which reads an rm_prompt."""
        return bool(self.engines) or self.remote is not None
