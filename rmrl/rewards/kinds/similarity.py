"""Kind `similarity`: how near a response is to a reference, as the cosine of their embeddings
through a curve.

The default curve is 0.1 up to a cosine of 0.65, 1.0 from 0.85, and 0.1 * 10 ** ((cosine - 0.65) /
0.2) between: embeddings of unrelated texts are seldom far apart, so most of the range of the cosine
says nothing.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

from rmrl.errors import RewardError
from rmrl.inference.scoring_base import EmbedOutput, EmbedRequest, Runner
from rmrl.models.checkpoint_inspect import sentence_settings
from rmrl.rewards.judging.asking import conversation_text
from rmrl.rewards.kinds.context import KindContext
from rmrl.rewards.kinds.rendering import (
    Rendered,
    postprocess,
    preprocess,
    preprocess_of,
    without_verdict,
)
from rmrl.rewards.kinds.row_errors import Origin
from rmrl.rewards.kinds.truncation import Cutting, Limit, fitted, with_cuts
from rmrl.rewards.rules.verdict import RowError, check_verdict
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreItem, ScoreResult

SHAPES = ("exponential", "linear")
_IN_EXTRA = "extra_info."


def curve_value(
    cosine: float, points: Sequence[Sequence[float]], shape: str = "exponential"
) -> float:
    """The curve through `points` [[x, y], ...] (x rising) at `cosine`; constant before the first
    and behind the last point.

    Between (x0, y0) and (x1, y1), with t = (x - x0) / (x1 - x0):
        linear         y0 + (y1 - y0) * t
        exponential    y0 * (y1 / y0) ** t, every y being greater than 0
    """
    after = bisect.bisect_right([x for x, _ in points], cosine)
    if after in (0, len(points)):
        return float(points[min(after, len(points) - 1)][1])
    (x0, y0), (x1, y1) = points[after - 1 : after + 1]
    t = (cosine - x0) / (x1 - x0)
    return y0 + (y1 - y0) * t if shape == "linear" else y0 * (y1 / y0) ** t


@dataclass(frozen=True, slots=True)
class Compared:
    """A response and the references it is held against; none where `missing` says why."""

    response: str
    references: tuple[str, ...] = ()
    missing: str = ""
    left_out: int = 0
    """Tokens that were cut from all of them (`overlong`)."""


class SimilarityReward:
    """Cosine to the best of a row's references. An embedding model obeys nothing, so responses are
    neither fenced nor changed."""

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Options:
        """Entries that only this kind has."""

        reference: str = "ground_truth"
        """Where a row's reference is: ground_truth, rm_prompt, or extra_info.<key>; of a list of
        texts the nearest counts."""
        curve: list[list[float]] = field(default_factory=lambda: [[0.65, 0.1], [0.85, 1.0]])
        """[[cosine, score], ...], cosines rising; constant outside. []: the cosine itself is the
        score."""
        shape: str = "exponential"
        """exponential or linear between the points."""
        prefix: str = ""
        """Put before both texts, for models trained with one, e.g. "query: "."""

    roles: ClassVar[Mapping[str, Runner]] = {"main": "embed"}
    samples: ClassVar[bool] = False
    whole_groups: ClassVar[bool] = False
    truncates: ClassVar[bool] = True

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        self._spec, self._context = spec, context
        self._options: SimilarityReward.Options = spec.options or self.Options()
        self._dropin = (
            spec.dropin if spec.dropin is not None and spec.dropin.preprocess is not None else None
        )

    @classmethod
    def from_spec(cls, spec: RewardSpec, context: KindContext) -> SimilarityReward:
        return cls(spec, context)

    @classmethod
    def check_options(cls, options: Options, where: str) -> list[str]:
        """What is wrong with the entries by themselves."""
        problems = []
        in_extra = options.reference.startswith(_IN_EXTRA) and options.reference != _IN_EXTRA
        if options.reference not in ("ground_truth", "rm_prompt") and not in_extra:
            problems.append(
                f"{where}.reference={options.reference}: give ground_truth, rm_prompt, or"
                " extra_info.<key>"
            )
        if options.shape not in SHAPES:
            problems.append(f"{where}.shape={options.shape}: give {' or '.join(SHAPES)}")
        return problems + [
            f"{where}.curve{problem}" for problem in _curve_problems(options.curve, options.shape)
        ]

    @classmethod
    def missing_reference(cls, spec: RewardSpec, item: ScoreItem) -> str:
        """Why the row has no reference to compare with; "" where it has one."""
        options: SimilarityReward.Options = spec.options or cls.Options()
        return own_references(item, options.reference).missing

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One score per item; a row without a reference is a `user_error` that names the row and
        the field."""
        compared = self._fitted(self._compared(items))
        texts = [
            text
            for each in compared
            if not each.missing
            for text in (each.response, *each.references)
        ]
        requests = [EmbedRequest(self._options.prefix + text) for text in texts]
        outputs = iter(
            await self._context.calls_to().submit("embed", requests, deterministic=True)
            if requests
            else []
        )
        found = [
            [next(outputs) for _ in (each.response, *each.references)] if not each.missing else []
            for each in compared
        ]
        cosines = [_cosines(vectors) for vectors in found]
        scores = self._scores(items, cosines)
        results = [_result(*row) for row in zip(compared, found, cosines, scores, strict=True)]
        return with_cuts(
            results,
            [each.left_out for each in compared],
            how=self._spec.overlong,
            counts=self._context.counts,
        )

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """What is compared, one text per item."""
        compared = self._fitted(self._compared(items))
        return [
            Rendered(_shown(each), (), tokenized=False, left_out=each.left_out) for each in compared
        ]

    def _fitted(self, compared: Sequence[Compared]) -> list[Compared]:
        """Every text by itself cut to what the model embeds, where `overlong` says so."""
        if self._spec.overlong == "missing":
            return list(compared)
        engine = self._spec.engines["main"]
        tokenizer, settings = self._context.tokenizer(engine.path), sentence_settings(engine.path)
        context = min(engine.context_length(), settings.max_tokens)
        limit = Limit(how=self._spec.overlong, tokens=context, tokenizer=tokenizer)
        before = settings.prefix + self._options.prefix
        cutting = Cutting[str, tuple[str, int]](
            passages=lambda text: [[text]],
            rebuilt=lambda _, passages: passages[0][0],
            render=lambda _, texts: [
                (text, len(tokenizer(before + text, verbose=False)["input_ids"])) for text in texts
            ],
            length=lambda read: read[1],
        )
        texts = iter(
            fitted(
                [text for each in compared for text in (each.response, *each.references)],
                cutting,
                limit,
            )
        )
        return [
            _shortened(each, [next(texts) for _ in (each.response, *each.references)])
            for each in compared
        ]

    def _compared(self, items: Sequence[ScoreItem]) -> list[Compared]:
        if self._dropin is None:
            return [own_references(item, self._options.reference) for item in items]
        tokenizer = self._context.tokenizer(self._spec.engines["main"].path)
        origin = preprocess_of(self._dropin)
        returned = preprocess(self._dropin, items, tokenizer)
        return [
            self._of_dropin(each, item, origin=origin)
            for each, item in zip(returned, items, strict=True)
        ]

    def _of_dropin(self, returned: Any, item: ScoreItem, *, origin: Origin) -> Compared:
        """A string to embed in the response's place, or (response, reference or references)."""
        if isinstance(returned, RowError):
            return Compared(item.response, missing=f"{returned.what} {returned.detail}")
        if isinstance(returned, str):
            own = own_references(item, self._options.reference)
            return Compared(returned, own.references, own.missing)
        if isinstance(returned, tuple) and len(returned) == 2:
            response, references = returned
            references = [references] if isinstance(references, str) else references
            if (
                isinstance(response, str)
                and isinstance(references, list)
                and references
                and all(isinstance(r, str) for r in references)
            ):
                return Compared(response, tuple(references))
        problem = (
            f"{origin.what} returned {repr(returned)[:80]} ({type(returned).__name__}) for a"
            " response; give the text to embed, or a tuple (text, reference) with a reference or a"
            f" list of references {origin.seen_on(item.response)}"
        )
        return Compared(item.response, missing=problem)

    def _scores(self, items: Sequence[ScoreItem], cosines: Sequence[Sequence[float]]) -> list[Any]:
        """The curve at the best cosine, or what rm_postprocess makes of that cosine; None where
        there is none."""
        there = [i for i, values in enumerate(cosines) if values]
        best = [max(cosines[i]) for i in there]
        if self._dropin is not None and self._dropin.postprocess is not None and there:
            told = postprocess(self._dropin, list(best), [items[i] for i in there])
        else:
            curve, shape = self._options.curve, self._options.shape
            told = [curve_value(cosine, curve, shape) if curve else cosine for cosine in best]
        scores: list[Any] = [None] * len(items)
        for i, score in zip(there, told, strict=True):
            scores[i] = score
        return scores


def own_references(item: ScoreItem, reference: str) -> Compared:
    """The row's response and its references, read from the field `reference`."""
    value = _field(item, reference)
    texts = [value] if isinstance(value, str) else value
    fine = (
        isinstance(texts, list | tuple)
        and texts
        and all(isinstance(text, str) and text.strip() for text in texts)
    )
    if fine:
        return Compared(item.response, tuple(texts))
    seen = "nothing there" if value is None else f"{repr(value)[:60]} there"
    detail = (
        f"row {item.prompt_id} has no reference: {reference} has to be a text or a list of texts,"
        f" and {seen}"
    )
    return Compared(item.response, missing=detail)


def _shortened(each: Compared, texts: Sequence[tuple[tuple[str, int], int]]) -> Compared:
    """`texts`: ((the text, its tokens), tokens left out) of the response and of each reference."""
    response, *references = [text for (text, _), _ in texts]
    left_out = sum(tokens for _, tokens in texts)
    return dataclasses.replace(
        each, response=response, references=tuple(references), left_out=left_out
    )


def _field(item: ScoreItem, reference: str) -> Any:
    if reference == "ground_truth":
        return item.ground_truth
    if reference == "rm_prompt":
        return conversation_text(item.rm_prompt)
    found: Any = item.extra_info
    for key in reference.removeprefix(_IN_EXTRA).split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found.tolist() if hasattr(found, "tolist") else found


def _cosines(vectors: Sequence[EmbedOutput]) -> list[float]:
    """Of the first vector with each other one; [] where one is missing or no number."""
    if not vectors or any(output.failure or not output.vector for output in vectors):
        return []
    response, *references = vectors
    if any(len(output.vector) != len(response.vector) for output in references):
        lengths = ", ".join(str(len(output.vector)) for output in vectors)
        raise RewardError(
            f"the embedding engine gave vectors of different lengths ({lengths}), which have no"
            " cosine"
        )
    cosines = [
        math.fsum(a * b for a, b in zip(response.vector, output.vector, strict=True))
        for output in references
    ]
    return (
        [min(1.0, max(-1.0, cosine)) for cosine in cosines]
        if all(map(math.isfinite, cosines))
        else []
    )


def _result(
    compared: Compared, vectors: Sequence[EmbedOutput], cosines: Sequence[float], score: Any
) -> ScoreResult:
    shared: dict[str, Any] = {
        "rendered": _shown(compared),
        "tokens_in": sum(output.tokens_in for output in vectors),
        "cached": bool(vectors) and all(output.cached for output in vectors),
    }
    if compared.missing:
        return ScoreResult(value=None, status="user_error", detail=compared.missing, **shared)
    failed = next((output for output in vectors if output.failure), None)
    if failed is not None:
        return ScoreResult(
            value=None, status=failed.failure or "provider_error", detail=failed.detail, **shared
        )
    if not cosines:
        return ScoreResult(
            value=None,
            status="provider_error",
            detail="the engine gave no vector, or one that is no number",
            **shared,
        )
    verdict = check_verdict(score)
    extra = {"cosine": max(cosines), **verdict.extra}
    if verdict.value is None:
        return without_verdict(verdict, extra=extra, **shared)
    return ScoreResult(value=verdict.value, extra=extra, raw_text=f"{max(cosines):.6g}", **shared)


def _shown(compared: Compared) -> str:
    return "\n---\n".join((compared.response, *compared.references))


def _curve_problems(curve: Any, shape: str) -> list[str]:
    """What is wrong with a curve as it was typed; what follows its name."""
    if curve == []:
        return []
    if (
        not isinstance(curve, list)
        or len(curve) < 2
        or not all(_is_point(point) for point in curve)
    ):
        return [
            f"={curve!r}: give at least two points [cosine, score], e.g. [[0.65, 0.1], [0.85,"
            " 1.0]], or [] for the cosine itself"
        ]
    xs, ys = [point[0] for point in curve], [point[1] for point in curve]
    problems = []
    if any(b <= a for a, b in pairwise(xs)):
        problems.append(
            f": cosines must rise from point to point, seen {', '.join(f'{x:g}' for x in xs)}"
        )
    if shape == "exponential" and min(ys) <= 0:
        problems.append(
            f" has the score {min(ys):g}, and an exponential between scores needs them above 0:"
            " raise it, or give shape=linear"
        )
    return problems


def _is_point(point: Any) -> bool:
    fine = isinstance(point, list | tuple) and len(point) == 2
    return fine and all(
        isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each)
        for each in point
    )
