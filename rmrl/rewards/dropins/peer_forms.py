"""Reward functions as EasyR1, AReaL, slime, rLLM and open-instruct call them, made rules that take
lists in TRL's form.

    EasyR1    compute_score(reward_inputs) -> [{"overall": number, ...}]
              compute_score(reward_input) -> {"overall": number, ...}
    AReaL     reward(prompt, completions, prompt_ids, completion_ids, **columns) -> number
    slime     custom_rm(args, sample) -> number, or a dict with args.reward_key
              custom_rm(args, samples) -> list
    rLLM      reward(task_info, action) -> RewardOutput
    open-instruct
              verifier(tokenized_prediction, prediction, label, query) -> VerificationResult

A form is known by its parameters' names. A prompt that these trainers pass with the chat template
applied is the text without it.

Rule workers import this module: beside the standard library it needs `list_signatures` and
`rmrl.errors` only.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any, ClassVar

from rmrl.errors import RewardFunctionError
from rmrl.rewards.dropins.list_signatures import MisfitError, prompt_text

_SAMPLES = ("slime.utils.types", "miles.utils.types")
"""Modules with slime's class Sample. A function that compares a sample's status imports one."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One response with its row."""

    prompt: str
    text: str
    token_ids: list[int] | None
    """None where the response came as text."""
    columns: Mapping[str, Any]

    @property
    def reference(self) -> Any:
        return self.columns.get("ground_truth")

    @property
    def length(self) -> int | None:
        """Tokens in the response. None where nobody counted them, so that no function takes the
        response for an empty one."""
        count = self.columns.get("response_tokens") or None
        if count is None and not self.text.strip():
            return 0
        return count

    @property
    def info(self) -> dict[str, Any]:
        return dict(self.columns.get("extra_info") or {})


class PeerForm:
    """A trainer's form. `verdict` is enough where a call has one response."""

    marks: ClassVar[tuple[str, ...]]
    """Parameters by which a function is known, which it gets."""
    takes_columns: ClassVar[bool] = False
    """Whether its other parameters are the row's columns."""
    reads_tokens: ClassVar[bool] = False

    async def verdict(self, function: Callable[..., Any], response: Answered) -> Any:
        """Return what the function returns for one response, as rmrl has it."""
        raise NotImplementedError

    async def verdicts(
        self, function: Callable[..., Any], responses: Sequence[Answered]
    ) -> list[Any]:
        """Return one verdict per response to a prompt."""
        return [await self.verdict(function, response) for response in responses]

    def rule(self, function: Callable[..., Any], where: str) -> Callable[..., Any]:
        """Return a rule in TRL's form. Raises RewardFunctionError, naming `where`, for a parameter
        that nobody passes."""
        if not self.takes_columns:
            strange = [name for name in required(function) if name not in self.marks]
            if strange:
                raise RewardFunctionError(
                    f"{where}: the function needs {', '.join(strange)} beside"
                    f" {', '.join(self.marks)}; give its own arguments with"
                    f" reward.specs.<name>.arguments.{strange[0]}=..."
                )

        async def of_tokens(
            prompts: Sequence[Any],
            completions: Sequence[Any],
            completion_ids: Any = (),
            **columns: Any,
        ) -> list[Any]:
            responses: list[Answered] = []
            everything = zip_longest(prompts, completions, completion_ids)
            for i, (prompt, completion, ids) in enumerate(everything):
                row = {name: values[i] for name, values in columns.items()}
                if not isinstance(prompt, str):
                    prompt = prompt_text(prompt)
                if not isinstance(completion, str):
                    completion = completion[0]["content"]
                responses.append(Answered(prompt, completion, ids, row))
            return await self.verdicts(function, responses)

        async def of_texts(prompts: Any, completions: Any, **columns: Any) -> list[Any]:
            return await of_tokens(prompts, completions, **columns)

        rule = of_tokens if self.reads_tokens else of_texts
        rule.__name__ = getattr(function, "__name__", type(function).__name__)
        return rule


class EasyR1(PeerForm):
    """`reward_type=batch`."""

    marks = ("reward_inputs",)

    async def verdicts(
        self, function: Callable[..., Any], responses: Sequence[Answered]
    ) -> list[Any]:
        returned = await result(function(list(map(reward_input, responses))))
        return [with_score(verdict) for verdict in returned]


class SequentialEasyR1(PeerForm):
    """`reward_type=sequential`."""

    marks = ("reward_input",)

    async def verdict(self, function: Callable[..., Any], response: Answered) -> Any:
        return with_score(await result(function(reward_input(response))))


class AReaL(PeerForm):
    """One response at a time, and the row's columns."""

    marks = ("prompt", "completions", "prompt_ids", "completion_ids")
    takes_columns = True
    reads_tokens = True

    async def verdict(self, function: Callable[..., Any], response: Answered) -> Any:
        parameters = inspect.signature(function).parameters
        arguments: dict[str, Any] = {
            **response.columns,
            "prompt": response.prompt,
            "completions": response.text,
            "prompt_ids": None,
            "completion_ids": response.token_ids,
        }
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            arguments = {name: value for name, value in arguments.items() if name in parameters}
        missing = [name for name in required(function) if name not in arguments]
        if missing:
            raise MisfitError(f"needs {', '.join(missing)}, which this row does not have")
        return await result(function(**arguments))


class Slime(PeerForm):
    """`--custom-rm-path`."""

    marks = ("args", "sample")
    reads_tokens = True

    async def verdict(self, function: Callable[..., Any], response: Answered) -> Any:
        args = arguments_of(function)
        return keyed(await result(function(args=args, sample=sample_of(response, 0))), args)


class SlimeGroup(PeerForm):
    """`--custom-rm-path` with `--group-rm`."""

    marks = ("args", "samples")
    reads_tokens = True

    async def verdicts(
        self, function: Callable[..., Any], responses: Sequence[Answered]
    ) -> list[Any]:
        args = arguments_of(function)
        samples = [sample_of(response, i) for i, response in enumerate(responses)]
        returned = await result(function(args=args, samples=samples))
        return [keyed(verdict, args) for verdict in returned]


class RLLM(PeerForm):
    """`RewardFunction`."""

    marks = ("task_info", "action")

    async def verdict(self, function: Callable[..., Any], response: Answered) -> Any:
        task = dict(response.columns)  # the entries of extra_info among them
        returned = await result(function(task_info=task, action=response.text))
        if not hasattr(returned, "reward"):
            return returned
        verdict = {**(getattr(returned, "metadata", None) or {}), "score": returned.reward}
        if getattr(returned, "is_correct", None) is not None:
            verdict["is_correct"] = returned.is_correct
        return verdict


class OpenInstruct(PeerForm):
    """`VerifierFunction`."""

    marks = ("tokenized_prediction", "prediction", "label")
    reads_tokens = True

    async def verdict(self, function: Callable[..., Any], response: Answered) -> Any:
        if response.reference is None:
            raise MisfitError("needs label, and this row has no reference answer")
        query: dict[str, str] = {}
        if "query" in inspect.signature(function).parameters:
            query["query"] = response.prompt
        tokens = response.token_ids or []
        returned = await result(function(tokens, response.text, response.reference, **query))
        if not hasattr(returned, "score"):
            return returned
        reasoning = getattr(returned, "reasoning", None)
        if reasoning is None:
            return returned.score
        return {"score": returned.score, "reasoning": reasoning}


PEER_FORMS: tuple[PeerForm, ...] = (
    EasyR1(),
    SequentialEasyR1(),
    AReaL(),
    Slime(),
    SlimeGroup(),
    RLLM(),
    OpenInstruct(),
)


def peer_form(names: Sequence[str]) -> PeerForm | None:
    """Return the form of a function with these parameters, None where it is another."""
    for form in PEER_FORMS:
        if set(form.marks) <= set(names):
            return form
    return None


def required(function: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters without a default."""
    names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        variadic = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if parameter.default is parameter.empty and not variadic:
            names.append(parameter.name)
    return names


async def result(returned: Any) -> Any:
    """Return an async function's result, and other values unchanged."""
    if inspect.isawaitable(returned):
        return await returned
    return returned


class RewardInput(dict[str, Any]):
    """EasyR1's input, with the entries of extra_info. A length that nobody counted is missing."""

    def __missing__(self, name: str) -> Any:
        if name == "response_length":
            raise MisfitError(
                "needs response_length, and nobody counted this response's tokens; give"
                " data.tokenizer=<the policy's>"
            )
        raise KeyError(name)


def reward_input(response: Answered) -> RewardInput:
    """Return what EasyR1 passes for one response."""
    fields = RewardInput(response.info)
    fields |= {"response": response.text, "ground_truth": response.reference}
    if response.length is not None:
        fields["response_length"] = response.length
    return fields


def with_score(verdict: Any) -> Any:
    """Return EasyR1's scores with `overall` as the score."""
    if isinstance(verdict, Mapping) and "overall" in verdict:
        further = dict(verdict)
        return {"score": further.pop("overall"), **further}
    return verdict


def arguments_of(function: Callable[..., Any]) -> Any:
    """Return slime's arguments: the entries of `reward.specs.<name>.arguments.args`."""
    entries = inspect.signature(function).parameters["args"].default
    if isinstance(entries, Mapping):
        return SimpleNamespace(**entries)
    return SimpleNamespace()


def keyed(verdict: Any, args: Any) -> Any:
    """Return a dict's entry `args.reward_key` as the score, the others beside it."""
    key = getattr(args, "reward_key", None)
    if isinstance(verdict, Mapping) and key in verdict:
        return {**verdict, "score": verdict[key]}
    return verdict


def sample_of(response: Answered, index: int) -> Any:
    """Return slime's Sample, or its fields where the function's module has not imported slime. Its
    tokens are the response's."""
    status = {"length": "truncated"}.get(response.columns.get("finish_reason", ""), "completed")
    fields: dict[str, Any] = {
        "group_index": 0,
        "index": index,
        "prompt": response.prompt,
        "tokens": response.token_ids or [],
        "response": response.text,
        "response_length": response.length,
        "label": response.reference,
        "metadata": response.info,
    }
    for module in _SAMPLES:
        sample = getattr(sys.modules.get(module), "Sample", None)
        if sample is not None:
            return sample(**fields, status=sample.Status(status))
    return SimpleNamespace(**fields, status=status, reward=None)
