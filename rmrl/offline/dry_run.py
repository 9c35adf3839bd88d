"""`rmrl score ... --dry-run`: requests that a scoring job would send, counted without an engine.

Models' inputs are rendered and tokenized as in the job, and recorded instead of sent. A judge's
further rounds follow on made-up answers, so there are as many as with answers that can be read.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rmrl.assemble.build import tokenizers
from rmrl.columns import aligned
from rmrl.data.responses import batches
from rmrl.data.row_index import Survey, rows_to_score, survey
from rmrl.errors import RewardFunctionError
from rmrl.inference.reward_engine_base import EmbedRequest, GenerateRequest, TextOutput
from rmrl.offline.check_scoring import CheckedScoring, without_tokenizer
from rmrl.offline.estimate import counts_for, of_rows
from rmrl.offline.response_rows import response_rows
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.shared.context import Counts, KindContext
from rmrl.rewards.remote.spec import DecisionRequest, RewardRequest
from rmrl.rewards.session.items import ResponseRow, score_item
from rmrl.rewards.session.turns import reader_of
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.telemetry.clock import rough_duration

_RENDERED_RESPONSES = 256
"""Responses whose requests are counted; those of the others are estimated from them."""
_CHARACTERS_PER_TOKEN = 4
"""Where the server tokenizes."""
_MOST_CHARACTERS = 4000


class _NoAnswerError(Exception):
    """The answer to a recorded request would be numbers, and nothing is asked after it."""


@dataclass(slots=True, kw_only=True)
class Recorder:
    """Stands for one role's engine or server: records requests, and writes judges' answers
    itself."""

    label: str
    place: str
    """Model and engine, or model and server."""
    path: str = ""
    """Checkpoint of the model; "" of a server's."""
    requests_per_minute: float | None = None
    requests: list[Any] = field(default_factory=list)
    _seen: set[Any] = field(default_factory=set)

    async def submit(
        self, method: str, requests: Sequence[Any], *, deterministic: bool
    ) -> list[Any]:
        """See `Calls.submit`; a deterministic scorer's equal requests count once."""
        for request in requests:
            if not deterministic:
                self.requests.append(request)
            elif request not in self._seen:
                self._seen.add(request)
                self.requests.append(request)
        if method != "generate":
            raise _NoAnswerError
        answers: list[list[TextOutput]] = []
        for request in requests:
            text = "1"
            if request.sampling.choice:
                text = request.sampling.choice[0]
            count = len(request.choice_tokens)
            logprobs = (-math.log(max(count, 1)),) * count
            answer = TextOutput(text, "stop", len(request.token_ids), 1, logprobs)
            answers.append([answer] * request.sampling.n)
        return answers

    def cells(self, scale: float, about: str) -> list[str]:
        """Return the table row for `scale` times the requests, with `about` before each number."""
        tokens_in = 0
        tokens_out = 0
        for request in self.requests:
            ids = getattr(request, "token_ids", ())
            tokens_in += len(ids) or math.ceil(len(text_of(request)) / _CHARACTERS_PER_TOKEN)
            if isinstance(request, GenerateRequest):
                tokens_out += request.sampling.max_tokens * request.sampling.n
        cells = [self.label, self.place]
        for figure in (len(self.requests), tokens_in, tokens_out):
            cells.append(f"{about}{figure * scale:,.0f}" if figure else "-")
        return cells

    def first_input(self, tokenizer: Callable[[str], Any]) -> list[str]:
        """Return the lines that show the first request, [] without one."""
        if not self.requests:
            return []
        model = None
        if self.path:
            model = tokenizer(self.path)
        text = text_of(self.requests[0], model)
        if len(text) > _MOST_CHARACTERS:
            more = len(text) - _MOST_CHARACTERS
            text = f"{text[:_MOST_CHARACTERS]} ... ({more} more characters)"
        title = f"first input of {self.label}:"
        return ["", title, textwrap.indent(text, "  | ", lambda _: True)]


def text_of(request: Any, tokenizer: Any = None) -> str:
    """Return what a request gives a model to read. `tokenizer`: from the model, "" without it for a
    request of tokens alone."""
    ids = getattr(request, "token_ids", ())
    if ids and tokenizer is not None:
        return str(tokenizer.decode(list(ids)))
    match request:
        case GenerateRequest(messages=messages) if messages:
            return "\n".join(f"[{role}] {content}" for role, content in messages)
        case GenerateRequest(text=text) | EmbedRequest(text=text) if text:
            return text
        case DecisionRequest(text=text, questions=questions):
            return "\n".join([text, *(question for question, _ in questions)])
        case RewardRequest(prompt=prompt, response=response):
            return f"{prompt}\n{response}"
        case _:
            return ""


async def dry_run(checked: CheckedScoring) -> str:
    """Return the text to print. Raises DataError for rows that cannot be read, RewardFunctionError
    where a drop-in raises before it has asked anything."""
    data = checked.config.data
    surveyed = checked.survey
    if surveyed is None:
        counting = without_tokenizer(checked.config, checked.specs)
        by_group = checked.whole_groups
        surveyed = survey(data, for_parquet=False, by_group=by_group, count_tokens=counting)
    every_row = rows_to_score(data, surveyed, by_group=checked.whole_groups)
    sizes = iter((_RENDERED_RESPONSES, 1))
    first = next(batches(every_row, sizes, whole_groups=checked.whole_groups))
    rows = response_rows(first)
    tokenizer = tokenizers(checked.config.trainer.trust_remote_code)
    pool = RulePool(1)
    recorders: dict[str, list[Recorder]] = {}
    try:
        for spec in checked.specs:
            recorders[spec.name] = await _recorded(spec, rows, tokenizer, pool)
    finally:
        pool.close()
    return _text(checked, surveyed, rows, recorders, tokenizer)


async def _recorded(
    spec: RewardSpec, rows: Sequence[ResponseRow], tokenizer: Callable[[str], Any], pool: RulePool
) -> list[Recorder]:
    """Return what recorded the requests for `rows`, one for each model; [] for a reward that asks
    none."""
    recorders: dict[str, Recorder] = {}
    for role, engine in spec.engines.items():
        label = spec.name if role == "main" else f"{spec.name} ({role})"
        place = f"{Path(engine.path).name} ({engine.name})"
        recorders[role] = Recorder(label=label, place=place, path=engine.path)
    if spec.remote is not None:
        recorders["remote"] = Recorder(
            label=spec.name,
            place=f"{spec.remote.model} at {urlsplit(spec.remote.url).hostname}".strip(),
            requests_per_minute=spec.remote.requests_per_minute,
        )
    if not recorders or REWARD_KINDS[spec.kind].combines:
        return []
    counts = Counts()
    context = KindContext(pool=pool, tokenizer=tokenizer, calls=recorders, counts=counts)
    kind = reader_of(REWARD_KINDS[spec.kind].from_spec(spec, context), spec, counts)
    items = [score_item(row, spec) for row in rows if counts_for(spec, row.prompt.data_source)]
    try:
        if items:
            await kind.score(items)
    except _NoAnswerError:
        pass
    except RewardFunctionError:
        # A drop-in may not be able to read a made-up answer.
        if not any(recorder.requests for recorder in recorders.values()):
            raise
    return list(recorders.values())


def _text(
    checked: CheckedScoring,
    surveyed: Survey,
    rows: Sequence[ResponseRow],
    recorders: Mapping[str, Sequence[Recorder]],
    tokenizer: Callable[[str], Any],
) -> str:
    workload = of_rows(rows, responses=surveyed.responses)
    about = "about " if surveyed.responses > len(rows) else ""
    table = [["reward", "is asked of", "requests", "tokens in", "tokens out at most"]]
    inputs: list[str] = []
    rates: list[str] = []
    for spec in checked.specs:
        responses = workload.responses_of(spec)
        scale = responses / max(len(workload.rows_of(spec)), 1)
        if not recorders[spec.name] and not REWARD_KINDS[spec.kind].combines:
            calls = f"{responses:,.0f} calls"
            if spec.sources is not None:
                calls = f"{about}{calls}"
            table.append([spec.name, f"no model ({spec.kind})", calls, "-", "-"])
        for recorder in recorders[spec.name]:
            table.append(recorder.cells(scale, about))
            inputs += recorder.first_input(tokenizer)
            if recorder.requests_per_minute is not None:
                seconds = len(recorder.requests) * scale / recorder.requests_per_minute * 60
                rates.append(
                    f"{recorder.label}: at least {rough_duration(seconds)}, by its"
                    f" {recorder.requests_per_minute:g} requests a minute"
                )
    lines = [
        f"{surveyed.rows:,} rows with {surveyed.responses:,} responses would be scored; nothing was"
        " started or written",
        *aligned(table, right=(2, 3, 4)),
        *rates,
    ]
    if about:
        lines.append(f"estimated from the first {len(rows)} responses")
    if checked.config.reward.combine == "product" or any(spec.gates for spec in checked.specs):
        lines.append("rewards behind a gate, or behind a 0 of a product, are asked less")
    return "\n".join([*lines, *inputs])
