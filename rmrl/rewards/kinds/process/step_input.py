"""What a process reward model reads: the conversation with the steps of its last answer, and the
tokens at which each step is scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmrl.rewards.kinds.process.frame import frame_of, plain_frame
from rmrl.rewards.kinds.process.parts import Parts, tagged_pieces
from rmrl.rewards.kinds.process.steps import tokens_of_parts
from rmrl.rewards.kinds.shared.tokenizing import Rendered
from rmrl.rewards.reads.turns import prompt_turns
from rmrl.types import ScoreItem


@dataclass(frozen=True, kw_only=True, slots=True)
class StepForm:
    """How the model is shown where a step ends."""

    separator: str = "\n\n"
    """Text that ends a step. It belongs to the step that it ends. Empty: the whole response is one
    step."""
    step_token: str = ""
    """Text behind each step at whose token the model scores the step, e.g. <extra_0>. empty: the
    last token of the step itself."""
    joint: str = ""
    """With `step_token`: the text between it and the next step, in the place of the separator."""


def step_input(
    item: ScoreItem, parts: Parts, tokenizer: Any, form: StepForm, *, where: str
) -> tuple[Rendered, tuple[int, ...]]:
    """Return a response's input, and the place in it at which each step is read. The input is empty
    where a step has no token. `where`: the reward, for messages."""
    prompt = item.rm_prompt if parts.prompt is None else parts.prompt
    turns = prompt_turns(prompt)
    if tokenizer.chat_template:
        frame = frame_of(turns, tokenizer, where=where)
    else:
        frame = plain_frame(turns, tokenizer)
    if form.step_token:
        steps = tagged_pieces(
            parts.texts, form.step_token, joint=form.joint, separator=form.separator
        )
    else:
        steps = list(parts.texts)
        if frame.strips:
            steps[-1] = steps[-1].rstrip()
            steps[0] = steps[0].lstrip()
    pieces = [frame.before, *steps, frame.after]
    ids, last = tokens_of_parts(pieces, tokenizer, special=frame.special)
    # With a step token every other piece is the joint between two steps.
    stride = 2 if form.step_token else 1
    positions = tuple(last[1:-1:stride])
    if min(positions, default=-1) < 0:
        ids = []
    return Rendered("".join(pieces), tuple(ids)), positions
