"""A second model that keeps the best votes of a judge (entry `meta`).

    k votes, each with its critique -> the meta model: a score for each -> the best `keep` count

After Liu et al., "Inference-Time Scaling for Generalist Reward Modeling" (arXiv 2504.02495),
section 4: a meta RM guides the vote, a scalar model that reads the query, the responses and one
critique, and was trained to tell right critiques from wrong ones. The k_meta best of k votes count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmrl.config.plain_checks import field_problems
from rmrl.config.schema.fields import at_least, choice
from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.models.label_head import ACTIVATIONS
from rmrl.rewards.kinds.bradley_terry.reward import classified, logits_of
from rmrl.rewards.kinds.judge.case import Case, Choice
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.inputs import PART_ROWS, answers_in_parts
from rmrl.rewards.kinds.shared.rendering import Rendered, tokenized
from rmrl.rewards.kinds.shared.truncation import (
    MARK,
    Cutting,
    fitted,
    item_passages,
    items_rebuilt,
    pooling_limit,
    with_cut,
)
from rmrl.rewards.kinds.shared.untrusted import neutraliser
from rmrl.rewards.specs.labels import both_problems
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.specs.values import FurtherModel, known_entries
from rmrl.types import ScoreItem

ROLE = "meta"

Responses = tuple[ScoreItem, ...]
AskAgain = Callable[[Sequence[Responses]], list[Rendered]]
"""Responses, some with shorter texts -> the judge's question about each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaEntries(FurtherModel):
    """Entries below `meta`."""

    keep: int = at_least(least=1)
    """Votes that count: those whose critiques it scores highest."""
    label: str | int | None = None
    """Label whose value is the score, as in kind bradley_terry; so are the two below."""
    label_weights: dict[str | int, float] = field(default_factory=dict[str | int, float])
    activation: str = choice("auto", among=("auto", *ACTIVATIONS))


def meta_problems(entries: Mapping[str, Any], where: str) -> list[str]:
    """Return the problems of what was typed, one sentence each; {} is none."""
    example = f"{where}={{path: <folder or hub id>, keep: 4}}"
    if not entries:
        return []
    try:
        meta = MetaEntries(**known_entries(entries, MetaEntries, where, example=example))
    except ConfigError as error:
        return error.problems
    problems = list(field_problems(meta, f"{where}."))
    problems += both_problems(meta.label, meta.label_weights, where=where)
    if not meta.path:
        problems.append(
            f"{where}: the model that scores the critiques is not named: give e.g. {example}"
        )
    return problems


def keep_problem(entries: Mapping[str, Any], votes: int, source: str) -> str:
    """Return why the model has nothing to choose from, as the end of a sentence; "" where it has.
    `entries` are without problems of their own; `source` is the key that gives the number of
    `votes`."""
    if not entries or entries["keep"] < votes:
        return ""
    return (
        f"keeps meta.keep={entries['keep']} of {source}={votes} votes, so the second model would"
        f" have nothing to choose: raise {source} or lower meta.keep"
    )


class MetaModel:
    """A scalar model that reads the judge's question and one critique.

    With a chat template the question's turns are followed by the critique as the assistant's.
    Without one it reads the pair (question, critique). Both are made inert for its own tokenizer,
    which adds a space to the marks of fences. Where they do not fit, the prompt and the responses
    in the question are cut as `overlong` states. The critique never is.
    """

    def __init__(self, spec: RewardSpec, context: KindContext, *, keep: int) -> None:
        self._spec = spec
        self._context = context
        self._keep = keep

    async def choose(
        self, cases: Sequence[Case], *, min_votes: int = 1, ask_again: AskAgain
    ) -> None:
        """Set the votes that count in each case. The model is asked where more votes could be read
        than may count, and at least `min_votes`, without which there is no score."""
        pairs: list[tuple[Case, str]] = []
        for case in cases:
            critiques = case.critiques
            case.choice = Choice(list(critiques), self._keep)
            if len(critiques) > self._keep and len(critiques) >= min_votes:
                pairs += [(case, text) for text in critiques.values()]
        if not pairs:
            return
        labels = self._spec.labels

        async def send(part: list[Rendered]) -> Sequence[ValueOutput]:
            return await logits_of(part, self._context, role=ROLE, labels=labels)

        rendered, outputs = await answers_in_parts(
            self._parts(pairs, ask_again),
            send,
            rows=len(pairs),
            context=self._context,
            role=ROLE,
        )
        firsts = [case.items[0] for case, _ in pairs]
        results = classified(firsts, rendered, outputs, dropin=None, labels=labels)
        for (case, _), read, result in zip(pairs, rendered, results, strict=True):
            assert case.choice is not None
            cut = with_cut(result, read.left_out, how=self._spec.overlong)
            case.choice = dataclasses.replace(case.choice, scores=(*case.choice.scores, cut))

    def _parts(
        self, pairs: Sequence[tuple[Case, str]], ask_again: AskAgain
    ) -> Iterator[list[Rendered]]:
        """The inputs, PART_ROWS at a time."""
        tokenizer = self._context.tokenizer(self._spec.engines[ROLE].path)
        limit = pooling_limit(self._spec, tokenizer, role=ROLE)
        if limit is not None:
            limit = dataclasses.replace(limit, mark=MARK)  # as the judge reads it
        for start in range(0, len(pairs), PART_ROWS):
            part = pairs[start : start + PART_ROWS]
            cases = [case.items for case, _ in part]
            texts = [text for _, text in part]
            questions = [case.read for case, _ in part]

            def render(
                positions: Sequence[int], shorter: Sequence[Responses], texts: Sequence[str] = texts
            ) -> list[Rendered]:
                critiques = [texts[position] for position in positions]
                return self._inputs(shorter, ask_again(shorter), critiques)

            cutting = Cutting[Responses, Rendered](
                passages=item_passages,
                rebuilt=items_rebuilt,
                render=render,
                length=lambda read: len(read.token_ids),
            )
            whole = self._inputs(cases, questions, texts)
            rows: list[Rendered] = [
                dataclasses.replace(read, left_out=left_out)
                for read, left_out in fitted(cases, cutting, limit, reads=whole)
            ]
            yield rows

    def _inputs(
        self, cases: Sequence[Responses], questions: Sequence[Rendered], critiques: Sequence[str]
    ) -> list[Rendered]:
        tokenizer = self._context.tokenizer(self._spec.engines[ROLE].path)
        neutral = neutraliser(tokenizer)
        # One question has several critiques.
        turns_of: dict[int, list[dict[str, str]]] = {}
        reads: list[Any] = []
        for question, critique in zip(questions, critiques, strict=True):
            if id(question) not in turns_of:
                turns: list[dict[str, str]] = [
                    {"role": role, "content": neutral(text)}
                    for role, text in question.messages or [("user", question.text.rstrip())]
                ]
                turns_of[id(question)] = turns
            turns = turns_of[id(question)]
            safe = neutral(critique)
            read: Any = ("\n\n".join(turn["content"] for turn in turns), safe)
            if tokenizer.chat_template:
                read = [*turns, {"role": "assistant", "content": safe}]
            reads.append(read)
        firsts = [case[0] for case in cases]
        rendered = tokenized(self._spec, reads, firsts, tokenizer, generation_prompt=False)
        for i, question in enumerate(questions):
            if question.problem:
                rendered[i] = dataclasses.replace(
                    rendered[i], token_ids=(), problem=question.problem
                )
        return rendered
