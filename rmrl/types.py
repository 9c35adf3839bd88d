"""Data that the stages exchange: prompts -> responses -> scores -> advantages -> update.

Shape legend, used in every name below:
    P prompts    G responses per prompt    B = P * G responses (a prompt's group is contiguous)
    T response tokens    S prompt + response tokens    C reward components

On the controller, sequences are ragged (`Ragged`). Engines pad or pack inside, by token budget.
This module imports numpy only. Annotations name tensors, but torch is never imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from rmrl.arrays import same_fields, tokens_as_arrays
from rmrl.ragged import Ragged
from rmrl.turns import Branch, ResponseTurn

if TYPE_CHECKING:
    import torch

Message = Mapping[str, str]
"""One chat turn: {"role": ..., "content": ...}."""

Messages = Sequence[Message]
Metrics = dict[str, float]

Status = Literal[
    "ok", "skipped", "unparseable", "judge_truncated", "judge_refused", "overlong", "timeout",
    "provider_error", "worker_lost", "user_error", "cancelled",
]  # fmt: skip
STATUSES: tuple[str, ...] = Status.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A response with its turns, and what its harness recorded."""

    messages: Messages
    """Turns of the prompt and of the response, with tool calls and tool results."""
    first: int
    """Number of the response's first turn."""
    status: Status = "ok"
    """Every reward's status, where the harness recorded an error."""
    detail: str = ""
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    """The environment's own rewards. None: not computed."""
    stop: str = ""
    """Why the conversation ended, in the harness's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One row of a data set, ready for rollout."""

    id: str
    """Unique and stable over epochs, e.g. "train.parquet:17"."""
    messages: Messages
    token_ids: tuple[int, ...]
    """`messages` after the chat template, with the generation prompt, after truncation."""
    rm_prompts: Mapping[str, str | Messages] = field(default_factory=dict)
    """Column name without its prefix -> text: "" is `rm_prompt`, "0" is `rm_prompt_0`, "helpful" is
    `rm_prompt_helpful`."""
    ground_truth: str | None = None
    data_source: str = ""
    ability: str = ""
    extra_info: Mapping[str, Any] = field(default_factory=dict)
    plain_text: bool = False
    """Whether the row's prompt is a string. `messages` holds the string as one user turn."""
    opens_thinking: bool | None = None
    """Whether the rendered prompt ends inside a thinking block, which the response continues. None
    where nothing was rendered."""
    conversation: Conversation | None = None
    """The prompt with its one response, where that is a list of messages."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Response:
    """One sampled answer to one prompt, of one turn or several.

    Example:
        >>> prompt = Prompt(id="a:0", messages=[{"role": "user", "content": "Hi"}], token_ids=(5,))
        >>> response = Response(prompt=prompt, text="Hello", token_ids=np.array([7, 2]),
        ...                     logprobs=np.array([-0.1, -0.2]), finish_reason="stop",
        ...                     policy_version=0)
        >>> response.token_ids.dtype, len(response.token_ids) == len(response.logprobs)
        (dtype('int32'), True)
    """

    prompt: Prompt
    text: str
    token_ids: np.ndarray
    """Response tokens, with the end token where the engine sampled it. int32, shape [T]."""
    logprobs: np.ndarray | None
    """rollout_logprobs: the sampling engine computes them before top-k and top-p. float32, shape
    [T]."""
    finish_reason: str
    """"stop" or "length" (cut at the token limit)."""
    policy_version: int
    mask: np.ndarray | None = None
    """bool, shape [T]: the policy sampled the token. False is a hole: a tool or a user wrote the
    token, and its log-probability is 0. None: no holes."""
    turns: tuple[ResponseTurn, ...] = ()
    """(): one turn."""
    branches: tuple[Branch, ...] = ()
    """Parts with their own contexts, in order. (): all tokens follow the prompt."""

    def __post_init__(self) -> None:
        tokens_as_arrays(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Response) and same_fields(self, other)

    @property
    def sampled(self) -> int:
        """Count the tokens that the policy sampled."""
        return len(self.token_ids) if self.mask is None else int(np.count_nonzero(self.mask))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """All responses in one step: P prompts, each with a contiguous group of G responses."""

    responses: tuple[Response, ...]
    group_size: int

    @property
    def group_ids_B(self) -> np.ndarray:
        """Group number of each response, shape [B]."""
        return np.arange(len(self.responses)) // self.group_size


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreItem:
    """One reward's view of one response. Items for one prompt arrive together and in order."""

    prompt_id: str
    messages: Messages
    response: str
    """The text that the reward reads, as the entry `reads` states."""
    rm_prompt: str | Messages
    """The prompt that this reward reads: rm_prompt_<name>, else rm_prompt_<i>, else rm_prompt, else
    the text in `messages`."""
    ground_truth: str | None = None
    data_source: str = ""
    extra_info: Mapping[str, Any] = field(default_factory=dict)
    finish_reason: str = "stop"
    response_tokens: int = 0
    group: int = 0
    """Number of the prompt's group. Responses in one group are compared with each other."""
    plain_text: bool = False
    """Whether the row's prompt is a string."""
    token_ids: Sequence[int] | np.ndarray = ()
    """Tokens that the policy sampled. () for responses given as text."""
    step: int | None = None
    """Number of the update that the response trains. None outside of training (validation, offline
    scoring)."""
    whole: str | None = None
    """The whole response, where `response` is only a part or another text."""
    opens_thinking: bool | None = None
    """Whether the rendered prompt ends inside a thinking block, as in `Prompt`."""
    prompt_token_ids: Sequence[int] = ()
    """Prompt tokens as the policy reads them. () where no policy does."""
    conversation: Conversation | None = None
    """As in `Prompt`."""
    tool_results: Sequence[tuple[int, int]] = ()
    """Places of tool results in `response`, which lose their middle first where it is too long."""


@dataclass(frozen=True, slots=True)
class Step:
    """One part of a response, with its own score. A part starts where the part before ends.

    Example:
        >>> text = "2 + 2 = 4. So 5."
        >>> steps = (Step(end=10, value=1.0), Step(end=16, value=0.0))
        >>> text[: steps[0].end]
        '2 + 2 = 4.'
    """

    end: int
    """Number of characters from the response's start to this part's end. 0 for a turn."""
    value: float
    turn: int | None = None
    """The assistant turn's number in the response, from 0. None: a part of a text."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TeacherTokens:
    """A teacher's view of one response, and its weight there (`rmrl.trainer.teachers`)."""

    name: str
    weight: float
    clip: float
    """Largest size of a token's log-ratio. inf: no limit."""
    logprobs: np.ndarray
    """log p_teacher for each response token. float32 [T]."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreResult:
    """One component's verdict on one response. `value` is None exactly when `status` is not "ok".

    Example:
        >>> ScoreResult(value=0.5).status
        'ok'
        >>> ScoreResult(value=None, status="timeout", detail="no answer within 10 s").value
    """

    value: float | None
    status: Status = "ok"
    detail: str = ""
    """Reason for a missing verdict, or a remark on the verdict."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Extra columns that a reward function returned. The columns may differ from row to row."""
    raw_text: str = ""
    """The judge's output."""
    rendered: str = ""
    """The judge's input."""
    read: str | None = None
    """The text that the reward read, where the text is not the response."""
    unasked: bool = False
    """The response lacks the part that the reward reads, or its harness failed, so the reward was
    not asked. The reward did not fail, and no budget counts the row."""
    steps: tuple[Step, ...] = ()
    """Scores for the response's parts (`process` rewards), in order."""
    token_logprobs: np.ndarray | None = None
    """log p of each response token under a `teacher`. float32 [T]."""
    latency_s: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    cached: bool = False

    def __post_init__(self) -> None:
        assert (self.value is None) == (self.status != "ok"), (
            f"value {self.value} with status {self.status}"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScoreResult) and same_fields(self, other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Every component's verdict on every response.

    Example:
        >>> missing = ScoreResult(value=None, status="timeout")
        >>> results = ((ScoreResult(value=1.0), missing),)
        >>> scores = Scores(names=("rule",), results=results)
        >>> scores.values_BC.tolist(), scores.status_BC.tolist()
        ([[1.0], [nan]], [['ok'], ['timeout']])
    """

    names: tuple[str, ...]
    results: tuple[tuple[ScoreResult, ...], ...]
    """Indexed `[component][row]`."""

    @property
    def values_BC(self) -> np.ndarray:
        """Return the values, shape [B, C], float64. NaN = no verdict."""
        columns: list[list[float | None]] = []
        for column in self.results:
            columns.append([result.value for result in column])
        # numpy converts None to NaN
        return np.asarray(columns, dtype=np.float64).T if columns else np.zeros((0, 0))

    @property
    def status_BC(self) -> np.ndarray:
        """Return the status strings, shape [B, C]."""
        columns: list[list[str]] = []
        for column in self.results:
            columns.append([result.status for result in column])
        return np.asarray(columns, dtype=object).T


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardBatch:
    """Scores combined into one reward per response."""

    scores: Scores
    weights_C: np.ndarray
    rewards_B: np.ndarray
    """float64. NaN where `keep_B` is False."""
    keep_B: np.ndarray
    """bool. False: the row has no reward and leaves the loss and its group's statistics."""
    steps: tuple[tuple[Step, ...], ...] = ()
    """[B] weighted scores for parts of responses (`process` rewards), not contained in `rewards_B`.
    () without such rewards."""
    teachers: tuple[tuple[TeacherTokens, ...], ...] = ()
    """[B] teachers for each response, not contained in `rewards_B`. () without teachers."""
    columns_BC: np.ndarray | None = None
    """Component scores after their transforms, before their weights. NaN = no verdict. None: equal
    to `scores`."""
    takes_part_BC: np.ndarray | None = None
    """bool. False: the component has weight 0 on this row or scores other rows, so its missing
    verdict does not count. None: not recorded."""
    metrics: Metrics = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageInputs:
    """Inputs for an advantage estimator. Tensors are float32 unless stated otherwise. Rows without
    a reward are already removed."""

    rewards_B: torch.Tensor
    group_ids_B: torch.Tensor
    """int64. Groups need not be contiguous nor equal in size."""
    response_mask_BT: torch.Tensor
    """1 where a token belongs to the response, whether or not rollout correction rejected the
    token. Right-padded with 0."""
    token_rewards_BT: torch.Tensor | None = None
    """Added to the last-token reward, e.g. process rewards or the KL penalty in reward (already
    signed: negative = penalty)."""
    values_BT: torch.Tensor | None = None
    """The critic's values, for gae."""
    scores_BC: torch.Tensor | None = None
    """Component scores (NaN = no verdict), for estimators that normalise components separately."""
    weights_C: torch.Tensor | None = None
    baseline_rewards_B: torch.Tensor | None = None
    """Reward for the greedy response to the row's prompt (NaN = there is none), for remax."""
    energies_BT: torch.Tensor | None = None
    """Each token's energy under the old policy (see `TrainBatch`), for optimal_token_baseline."""
    rollout_weights_BT: torch.Tensor | None = None
    """Importance weights from rollout correction, also for rejected tokens. Only set beside
    `energies_BT`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantages:
    advantages_BT: torch.Tensor
    returns_BT: torch.Tensor | None = None
    """Targets for the value function. None without a critic."""
    metrics: Metrics = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs:
    """One micro-batch for the policy loss: right-padded, response positions only."""

    logprobs_BT: torch.Tensor
    """Log-probabilities under the trained policy, with the gradient."""
    old_logprobs_BT: torch.Tensor
    advantages_BT: torch.Tensor
    mask_BT: torch.Tensor
    """float, 1 = counts: a response token that rollout correction did not reject."""
    ref_logprobs_BT: torch.Tensor | None = None
    rollout_logprobs_BT: torch.Tensor | None = None
    rollout_weights_BT: torch.Tensor | None = None
    """Importance weights from rollout correction, >= 0. They multiply the policy loss."""
    entropy_BT: torch.Tensor | None = None
    nll_weights_BT: torch.Tensor | None = None
    """Weight for -log pi_new in the loss, >= 0. The weight is 0 except on successful responses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLossInputs:
    """One micro-batch for the value loss: right-padded, response positions only."""

    values_BT: torch.Tensor
    """The trained critic's values, with the gradient."""
    old_values_BT: torch.Tensor
    """Values before the step's first update."""
    returns_BT: torch.Tensor
    mask_BT: torch.Tensor
    """float, 1 = counts: a response token that rollout correction did not reject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBatch:
    """Sequences and the per-token streams that train on them. The batch holds no text and no
    rewards. All streams are ragged, with the same B."""

    tokens: Ragged
    """int64, prompt + response, lengths S."""
    response_mask: Ragged
    """float32, lengths T: the last T of the S tokens are the response. 0 on tokens that the policy
    did not sample. Rewards and all reward statistics count the other tokens."""
    kept_mask: Ragged | None = None
    """float32, lengths T: `response_mask` without the tokens that rollout correction rejected and
    without the truncated responses that are masked. None: no token was left out."""
    rollout_logprobs: Ragged | None = None
    rollout_weights: Ragged | None = None
    """Importance weights from rollout correction."""
    nll_weights: Ragged | None = None
    """Weight for each token's negative log-likelihood. The weight is 0 except on successful
    responses."""
    unit_tokens: Ragged | None = None
    """Number of `loss_mask` tokens over all rows of what `loss_agg_mode` averages over, the row's
    prompt or its response, repeated at each token. None: the row is that unit."""
    old_logprobs: Ragged | None = None
    energies: Ragged | None = None
    """Each token's energy under the old policy, 0..2: the squared length of log pi_old(token)'s
    gradient with respect to the logits over the temperature. Equals 1 - 2 pi_old(token) + the
    sum of squared probabilities over all tokens. None once the advantages are there."""
    ref_logprobs: Ragged | None = None
    advantages: Ragged | None = None
    values: Ragged | None = None
    returns: Ragged | None = None

    STREAMS = (
        "tokens",
        "response_mask",
        "kept_mask",
        "rollout_logprobs",
        "rollout_weights",
        "nll_weights",
        "unit_tokens",
        "old_logprobs",
        "energies",
        "ref_logprobs",
        "advantages",
        "values",
        "returns",
    )

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def loss_mask(self) -> Ragged:
        """Return the tokens that count in every loss: in its terms, its divisor and its metrics."""
        return self.response_mask if self.kept_mask is None else self.kept_mask

    def select(self, index: Sequence[int] | np.ndarray) -> Self:
        """Return the rows at `index`, in that order."""
        return self._each(lambda stream: stream.select(index))

    def joined(self, counts_B: np.ndarray) -> Self:
        """Return rows in which `counts_B[b]` neighbouring rows are joined, stream by stream."""
        if (counts_B == 1).all():
            return self
        return self._each(lambda stream: stream.joined(counts_B))

    def _each(self, change: Callable[[Ragged], Ragged]) -> Self:
        streams: dict[str, Any] = {}
        for name in self.STREAMS:
            stream = getattr(self, name)
            streams[name] = None if stream is None else change(stream)
        return type(self)(**streams)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters for the policy and for judges."""

    max_tokens: int
    """Largest number of tokens to write."""
    temperature: float = 1.0
    """0: greedy."""
    top_p: float = 1.0
    """Nucleus: the smallest set of tokens that holds this share of the probability. 1: all."""
    top_k: int = -1
    """The k likeliest tokens. -1: off."""
    n: int = 1
    """Samples per prompt."""
    seed: int | None = None
    """null: another seed in every run."""
    stop: tuple[str, ...] = ()
    """Texts that end the sample. The sample does not contain them."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the sample, besides the end token. The sample contains them."""
    ignore_eos: bool = False
    """Continue past the end token."""
    choice: tuple[str, ...] = ()
    """Structured output: the text is one of these."""
    regex: str = ""
    """Structured output: the text matches this."""
    json_schema: str = ""
    """Structured output: the text is JSON that follows this schema (itself JSON text)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Generation:
    """One finished sample from an engine."""

    prompt_index: int
    """Position of the prompt in the call."""
    sample_index: int
    """0 .. sampling.n - 1."""
    text: str
    token_ids: np.ndarray
    """int32, shape [T]."""
    logprobs: np.ndarray | None
    """float32, shape [T]."""
    finish_reason: str
    policy_version: int = 0

    def __post_init__(self) -> None:
        tokens_as_arrays(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Generation) and same_fields(self, other)
