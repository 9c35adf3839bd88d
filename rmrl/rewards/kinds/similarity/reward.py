"""Kind `similarity`: how near a response is to a reference, as the cosine of their embeddings
through a curve.

The default curve is 0.1 up to a cosine of 0.65, 1.0 from 0.85, and 0.1 * 10 ** ((cosine - 0.65) /
0.2) between. Embeddings of unrelated texts are seldom far apart, so most of the cosine's range
carries no information.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, starmap
from typing import Any, ClassVar

from rmrl.config.schema.fields import choice
from rmrl.data.json_text import reference_value
from rmrl.errors import RewardError
from rmrl.inference.reward_engine_base import EmbedOutput, EmbedRequest, Runner
from rmrl.models.checkpoint_inspect import sentence_settings
from rmrl.rewards.dropins.verdict import RowError, check_verdict
from rmrl.rewards.kinds.judge.asking import conversation_text
from rmrl.rewards.kinds.kind import Kind
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.dropin_calls import origin_of, take
from rmrl.rewards.kinds.shared.rendering import (
    Rendered,
    postprocess,
    preprocess,
    without_verdict,
)
from rmrl.rewards.kinds.shared.row_errors import Origin
from rmrl.rewards.kinds.shared.truncation import Cutting, Limit, fitted, with_cuts
from rmrl.rewards.kinds.similarity.curve import SHAPES, curve_problems, curve_value
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreItem, ScoreResult, Status

_IN_EXTRA = "extra_info."


@dataclass(frozen=True, slots=True)
class Compared:
    """A response and its references."""

    response: str
    references: tuple[str, ...] = ()
    missing: str = ""
    """Why there are no references, "" where there are."""
    left_out: int = 0
    """Tokens that were cut from all of them (`overlong`)."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The response, then its references."""
        return (self.response, *self.references)

    @property
    def display(self) -> str:
        """All texts in one, for transcripts."""
        return "\n---\n".join(self.texts)


class SimilarityReward(Kind):
    """Cosine to the nearest of a row's references.

    Responses are neither fenced nor changed: an embedding model follows no instructions.
    """

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Options:
        """Entries that only this kind has."""

        reference: str = "ground_truth"
        """Field of a row that holds its reference: ground_truth, rm_prompt, or extra_info.<key>. In
        a list of texts the nearest counts."""
        curve: Sequence[Sequence[float]] = ((0.65, 0.1), (0.85, 1.0))
        """[[cosine, score], ...], cosines rising; constant outside. []: the cosine itself is the
        score."""
        shape: str = choice("exponential", among=SHAPES)
        """Of the curve between the points."""
        prefix: str = ""
        """Text before both, for models that were trained with one, e.g. "query: "."""

    roles: ClassVar[Mapping[str, Runner]] = {"main": "embed"}
    truncates: ClassVar[bool] = True

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        super().__init__(spec, context)
        self._options: SimilarityReward.Options = spec.options
        self._dropin = None
        if spec.dropin is not None and spec.dropin.preprocess is not None:
            self._dropin = spec.dropin

    @classmethod
    def check_options(cls, options: Options, where: str) -> list[str]:
        """Problems of single entries, one sentence each."""
        problems = []
        in_extra = options.reference.startswith(_IN_EXTRA) and options.reference != _IN_EXTRA
        if options.reference not in ("ground_truth", "rm_prompt") and not in_extra:
            problems.append(
                f"{where}.reference={options.reference}: give ground_truth, rm_prompt, or"
                " extra_info.<key>"
            )
        for problem in curve_problems(options.curve, options.shape):
            problems.append(f"{where}.curve{problem}")
        return problems

    @classmethod
    def missing_references(cls, spec: RewardSpec, items: Sequence[ScoreItem]) -> list[str]:
        """Why each row has no reference to compare with, "" where it has one."""
        options: SimilarityReward.Options = spec.options
        return [own_references(item, options.reference).missing for item in items]

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One score per item. A row without a reference is a `user_error` that names the row and
        the field."""
        with self._context.preparing("main"):
            compared = await self._context.render(lambda: self._fitted(self._compared(items)))
        requests: list[EmbedRequest] = []
        for each in compared:
            if not each.missing:
                requests += [EmbedRequest(self._options.prefix + text) for text in each.texts]
        outputs: list[EmbedOutput] = []
        if requests:
            outputs = await self._context.calls_to().submit("embed", requests, deterministic=True)
        remaining = iter(outputs)
        vectors: list[list[EmbedOutput]] = []
        for each in compared:
            count = 0 if each.missing else len(each.texts)
            vectors.append(list(islice(remaining, count)))
        all_cosines = list(map(cosines_of, vectors))
        # The curve at the best cosine, or what rm_postprocess makes of that cosine.
        rows = [i for i, cosines in enumerate(all_cosines) if cosines]
        best = list(map(max, take(all_cosines, rows)))
        verdicts: Sequence[Any] = best
        if self._dropin is not None and self._dropin.postprocess is not None and rows:
            verdicts = postprocess(self._dropin, list(best), take(items, rows))
        elif self._options.curve:
            curve = self._options.curve
            verdicts = [curve_value(cosine, curve, self._options.shape) for cosine in best]
        scores: list[Any] = [None] * len(items)
        for i, verdict in zip(rows, verdicts, strict=True):
            scores[i] = verdict
        results = starmap(_result, zip(compared, vectors, all_cosines, scores, strict=True))
        left_out = [each.left_out for each in compared]
        return with_cuts(
            list(results), left_out, how=self._spec.overlong, counts=self._context.counts
        )

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """The texts that are compared, one input per item."""
        rendered: list[Rendered] = [
            Rendered(each.display, (), tokenized=False, left_out=each.left_out)
            for each in self._fitted(self._compared(items))
        ]
        return rendered

    def _fitted(self, compared: Sequence[Compared]) -> list[Compared]:
        """Every text cut by itself to the context of the model, unless `overlong` is missing."""
        if self._spec.overlong == "missing":
            return list(compared)
        engine = self._spec.engines["main"]
        tokenizer = self._context.tokenizer(engine.path)
        settings = sentence_settings(engine.path)
        context = min(engine.context_length(), settings.max_tokens)
        limit = Limit(how=self._spec.overlong, tokens=context, tokenizer=tokenizer)
        before = settings.prefix + self._options.prefix

        def render(positions: Sequence[int], texts: Sequence[str]) -> list[tuple[str, int]]:
            """Each text and its length in tokens."""
            del positions
            lengths: list[tuple[str, int]] = []
            for text in texts:
                encoded = tokenizer(before + text, verbose=False)
                lengths.append((text, len(encoded["input_ids"])))
            return lengths

        cutting = Cutting[str, tuple[str, int]](
            passages=lambda text: [[text]],
            rebuilt=lambda _, passages: passages[0][0],
            render=render,
            length=lambda read: read[1],
        )
        all_texts = list(chain.from_iterable(each.texts for each in compared))
        cut_texts = iter(fitted(all_texts, cutting, limit))
        shortened: list[Compared] = []
        for each in compared:
            texts: list[str] = []
            left_out = 0
            for (text, _), tokens in islice(cut_texts, len(each.texts)):
                texts.append(text)
                left_out += tokens
            shortened.append(
                dataclasses.replace(
                    each, response=texts[0], references=tuple(texts[1:]), left_out=left_out
                )
            )
        return shortened

    def _compared(self, items: Sequence[ScoreItem]) -> list[Compared]:
        if self._dropin is None:
            return [own_references(item, self._options.reference) for item in items]
        tokenizer = self._context.tokenizer(self._spec.engines["main"].path)
        origin = origin_of(self._dropin, "rm_preprocess")
        compared: list[Compared] = [
            self._of_dropin(returned, item, origin=origin)
            for returned, item in zip(
                preprocess(self._dropin, items, tokenizer), items, strict=True
            )
        ]
        return compared

    def _of_dropin(self, returned: Any, item: ScoreItem, *, origin: Origin) -> Compared:
        """The texts of a drop-in: a string to embed in the response's place, or (response,
        reference or references)."""
        if isinstance(returned, RowError):
            return Compared(item.response, missing=f"{returned.what} {returned.detail}")
        if isinstance(returned, str):
            row = own_references(item, self._options.reference)
            return Compared(returned, row.references, row.missing)
        if isinstance(returned, tuple) and len(returned) == 2:
            response, references = returned
            if isinstance(references, str):
                references = [references]
            if (
                isinstance(response, str)
                and isinstance(references, list)
                and _are_texts(references)
            ):
                return Compared(response, tuple(references))
        problem = (
            f"{origin.what} returned {repr(returned)[:80]} ({type(returned).__name__}) for a"
            " response; give the text to embed, or a tuple (text, reference) with a reference or a"
            f" list of references {origin.seen_on(item.response)}"
        )
        return Compared(item.response, missing=problem)


def own_references(item: ScoreItem, reference: str) -> Compared:
    """The row's response and its references, read from the field `reference`."""
    value: Any = item.extra_info
    if reference == "ground_truth":
        value = reference_value(item.ground_truth)
    elif reference == "rm_prompt":
        value = conversation_text(item.rm_prompt)
    else:
        for key in reference.removeprefix(_IN_EXTRA).split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if hasattr(value, "tolist"):
            value = value.tolist()
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list | tuple) and _are_texts(texts) and all(map(str.strip, texts)):
        return Compared(item.response, tuple(texts))
    content = "nothing" if value is None else repr(value)[:60]
    detail = (
        f"row {item.prompt_id} has no reference: {reference} has to be a text or a list of texts,"
        f" and {content} there"
    )
    return Compared(item.response, missing=detail)


def _are_texts(values: Sequence[Any]) -> bool:
    """Whether there is at least one and all are strings."""
    return bool(values) and all(isinstance(value, str) for value in values)


def cosines_of(vectors: Sequence[EmbedOutput]) -> list[float]:
    """Cosines of the first unit vector with each other one, [] where one is missing or not
    finite. Raises RewardError for vectors of different lengths."""
    lengths = [len(output.vector) for output in vectors]
    if not vectors or 0 in lengths or any(output.failure for output in vectors):
        return []
    if len(set(lengths)) > 1:
        raise RewardError(
            "the embedding engine returned vectors of different lengths"
            f" ({', '.join(map(str, lengths))}), which have no cosine"
        )
    response, *references = vectors
    cosines: list[float] = []
    for output in references:
        cosine = math.fsum(map(operator.mul, response.vector, output.vector))
        if not math.isfinite(cosine):
            return []
        cosines.append(min(1.0, max(-1.0, cosine)))
    return cosines


def _result(
    compared: Compared, vectors: Sequence[EmbedOutput], cosines: Sequence[float], score: Any
) -> ScoreResult:
    shared: dict[str, Any] = {
        "rendered": compared.display,
        "tokens_in": 0,
        "cached": bool(vectors),
    }
    failures: list[tuple[Status, str]] = []
    for output in vectors:
        shared["tokens_in"] += output.tokens_in
        shared["cached"] &= output.cached
        if output.failure:
            failures.append((output.failure, output.detail))
    if compared.missing:
        return ScoreResult(value=None, status="user_error", detail=compared.missing, **shared)
    if failures:
        status, detail = failures[0]
        return ScoreResult(value=None, status=status, detail=detail, **shared)
    if not cosines:
        return ScoreResult(
            value=None,
            status="provider_error",
            detail="the engine returned no vector, or one with a value that is no number",
            **shared,
        )
    verdict = check_verdict(score)
    extra = {"cosine": max(cosines), **verdict.extra}
    if verdict.value is None:
        return without_verdict(verdict, extra=extra, **shared)
    return ScoreResult(value=verdict.value, extra=extra, raw_text=f"{max(cosines):.6g}", **shared)
