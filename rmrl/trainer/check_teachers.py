"""Whether a teacher can rate the policy's tokens: compared before a process is started.

A teacher reads token ids that the policy wrote, so every id of the policy's tokenizer must be the
same token in the teacher's. Ids that only the teacher has do no harm, nor do rows of padding in
either model's vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from rmrl.config.schema import Config
from rmrl.errors import ConfigError
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.tokenizer import load_tokenizer

_SHOWN = 3


def teacher_problems(config: Config, specs: Sequence[RewardSpec]) -> Iterator[str]:
    """Yield a sentence for each teacher whose ids are not the policy's tokens. It names the first
    ids that differ. Tokenizers that cannot be loaded are reported by other checks."""
    for spec, policy, teacher in _pairs(config, specs):
        differing = list(islice(_differing(policy, teacher), _SHOWN))
        if differing:
            engine = spec.engines["main"]
            count = sum(1 for _ in _differing(policy, teacher))
            yield (
                f"reward '{spec.name}': the teacher '{engine.path}' has another vocabulary than the"
                f" policy, and it rates the policy's token ids: {count} ids differ, first"
                f" {'; '.join(differing)}; give a teacher with the policy's tokenizer"
            )


def teacher_advice(config: Config, specs: Sequence[RewardSpec]) -> Iterator[str]:
    """Yield differences that are allowed and make a teacher's ratings strange."""
    longest = config.data.max_prompt_length + config.data.max_response_length
    for spec, policy, teacher in _pairs(config, specs):
        context = spec.engines["main"].context_length()
        if context <= longest:
            yield (
                f"teacher '{spec.name}' takes texts of up to {context - 1} tokens, and"
                f" data.max_prompt_length + data.max_response_length is {longest}: longer ones have"
                f" no verdict (overlong); give reward.specs.{spec.name}.engine.max_model_len"
            )
        if policy.eos_token_id != teacher.eos_token_id:
            yield (
                f"teacher '{spec.name}' ends its texts with {teacher.eos_token!r} and the policy"
                f" with {policy.eos_token!r}: the teacher will find each end of a response"
                " unlikely"
            )
        if policy.chat_template != teacher.chat_template and spec.options.prompt == "policy":
            yield (
                f"teacher '{spec.name}' has another chat template than the policy, and reads"
                " prompts in the policy's"
            )


def _pairs(config: Config, specs: Sequence[RewardSpec]) -> Iterator[tuple[RewardSpec, Any, Any]]:
    """Yield each teacher with the policy's tokenizer and its own."""
    model = config.actor_rollout_ref.model
    policy: Any = None
    for spec in specs:
        if not REWARD_KINDS[spec.kind].rates_tokens:
            continue
        engine = spec.engines["main"]
        try:
            policy = policy or load_tokenizer(
                str(config.data.tokenizer or model.tokenizer_path or model.path),
                trust_remote_code=config.data.trust_remote_code or model.trust_remote_code,
                chat_template=model.custom_chat_template,
            )
            teacher = load_tokenizer(engine.path, trust_remote_code=engine.trust_remote_code)
        except ConfigError:
            continue
        yield spec, policy, teacher


def _differing(policy: Any, teacher: Any) -> Iterator[str]:
    """Yield each id of the policy's that is another token of the teacher's or none, in order."""
    theirs = {number: token for token, number in teacher.get_vocab().items()}
    ours = {number: token for token, number in policy.get_vocab().items()}
    for number in sorted(ours):
        if theirs.get(number) != ours[number]:
            other = repr(theirs[number]) if number in theirs else "no token"
            yield f"{number}: policy {ours[number]!r}, teacher {other}"
