"""The judge models of a server, by the names under which its clients ask them: that of the reward,
or name:role for further engines of the reward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmrl.api import RewardSpec, TextOutput
from rmrl.errors import ConfigError
from rmrl.serve.problems import RequestError
from rmrl.serve.service import Service
from rmrl.types import Sampling


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """An engine that writes text."""

    name: str
    role: str
    spec: RewardSpec

    @property
    def sampling(self) -> Sampling:
        """Sampling of a request that states nothing."""
        given = self.spec.sampling
        return Sampling(max_tokens=512) if given is None else given

    def check_length(self, count: int, *, field: str) -> int:
        """Return how many tokens fit behind an input with `count` tokens. Raises RequestError where
        none does. `field`: the input's place in the body."""
        most = self.spec.engines[self.role].context_length()
        if count >= most:
            raise RequestError(
                422,
                f"{field}: {count} tokens, and the maximum context length of {self.name} is {most};"
                " shorten them",
                field=field,
            )
        return most - count


def judge_models(service: Service, *, wire: str) -> dict[str, JudgeModel]:
    """Return the models by name. Raises ConfigError where no reward has an engine that writes."""
    models: dict[str, JudgeModel] = {}
    for spec in service.checked.scoring.specs:
        for role, engine in spec.engines.items():
            if engine.runner == "generate":
                name = spec.name if role == "main" else f"{spec.name}:{role}"
                models[name] = JudgeModel(name, role, spec)
    if not models:
        raise ConfigError(
            f"serve.wires names '{wire}', but no reward has a judge model on an engine of its own;"
            f" leave '{wire}' out, or give a reward of kind generative a path"
        )
    return models


def model_named(models: Mapping[str, JudgeModel], name: str | None) -> JudgeModel:
    """Return a model. None names the only one. Raises RequestError 404."""
    if name is None and len(models) == 1:
        return next(iter(models.values()))
    if name is None or name not in models:
        raise RequestError(
            404, f"there is no model of this name; there are {', '.join(models)}", field="model"
        )
    return models[name]


def check_answered(output: TextOutput, *, field: str) -> None:
    """Raise RequestError where the engine did not answer. `field`: the input's place in the
    body."""
    if not output.failure:
        return
    message = f"{output.failure}: {output.detail}"
    if output.failure == "overlong":
        raise RequestError(422, message, field=field)
    raise RequestError(503, message, retry_after_s=5.0)
