"""Facts that the class of a reward kind states about itself; read before a reward is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreItem


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFacts:
    """Class attributes of a kind, with what holds where its class does not state them."""

    roles: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Role -> runner of the engines it calls."""
    samples: bool = False
    """Takes the entry `sampling`."""
    whole_groups: bool = False
    """All responses of a prompt must arrive together."""
    truncates: bool = False
    """Cuts what does not fit the model, as the entry `overlong` states."""
    further: Mapping[str, type] = field(default_factory=dict[str, type])
    """Role other than main -> dataclass of the entries below the option of its name, where it has
    others than `FurtherModel`. Without entries the role has no engine."""
    labels_of: str = ""
    """Role of the model that may have several labels: `label`, `label_weights` and `activation` are
    among its entries. "": none."""
    scores_steps: bool = False
    """Its results have `steps`."""
    rates_tokens: bool = False
    """Its results have `token_logprobs`, so that its engine needs `token_logprobs`."""
    calls_function: bool = False
    """Scores with a function in a worker process: tried on the first rows before a run."""
    scores_on_server: bool = False
    """Scores on a reward server, which the entry `url` names."""
    combines: bool = False
    """Has no scores of its own: combines those of the rewards that `options.of` names."""
    missing_reference: Callable[[Any, ScoreItem], str] | None = None
    """(spec, item) -> why there is nothing to compare with, "" where there is."""
    server_of: Callable[[Any, str], Any] | None = None
    """(options, where) -> the server that does a part of its work, None where it needs none."""
    machine_problem: Callable[[Any], str] | None = None
    """(spec) -> why this machine cannot do its work, "" where it can; tried before a run."""
    file_content: Callable[[Any], str] | None = None
    """(options) -> the content of the files that the entries name, "" where they name none: the
    scores depend on it, and the entries hold no more than a path."""
    machine_report: Callable[[Any], str] | None = None
    """(spec) -> what does its work on this machine, for the log."""


def kind_facts(name: str) -> KindFacts:
    """Return what the class of kind `name` states. Raises ConfigError for an unknown name."""
    return _facts_of(REWARD_KINDS[name])


@cache
def _facts_of(kind: Any) -> KindFacts:
    names = [entry.name for entry in fields(KindFacts)]
    return KindFacts(**{name: getattr(kind, name) for name in names if hasattr(kind, name)})


def file_content(spec: RewardSpec) -> str:
    """Return the content of the files that a reward's entries name, "" where they name none."""
    content_of = kind_facts(spec.kind).file_content
    return "" if content_of is None else content_of(spec.options)
