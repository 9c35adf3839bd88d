"""The tiny policy of examples/arithmetic, taught to answer in several ways, and a GRPO loop for it
in one process: generation by transformers, advantages and loss by `rmrl.algorithms`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.audit_predicts.rewards import LONGEST, Rule, gold
from examples.arithmetic.make_data import split
from examples.assets.tiny_policy import encode, save, warm_up
from rmrl.algorithms import estimator_named, loss_named
from rmrl.algorithms.aggregate import total_weight
from rmrl.config.schema import ActorConfig, AlgorithmConfig
from rmrl.types import AdvantageInputs, LossInputs

PROMPTS, RESPONSES, UPDATES, LR = 32, 8, 4, 3e-4
WARM_UP_STEPS, WARM_UP_BATCH, WARM_UP_LR, VIEWS = 500, 64, 1e-3, 6


@dataclass(frozen=True, slots=True)
class Way:
    """A way to answer: how often it is shown, and how often rightly."""

    share: float
    right: float
    text: str


WAYS = (
    Way(0.36, 0.5, "{n}"),
    Way(0.10, 0.6, "It is {n}."),
    Way(0.10, 0.4, "Sure! {n}"),
    Way(0.08, 0.3, "Certainly {n}"),
    Way(0.10, 0.5, "{n} or {m}"),
    Way(0.06, 0.5, "{n}, {m}, {k}"),
    Way(0.08, 0.7, "first {k}, so {n}"),
    Way(0.06, 0.5, "{n}{marks}"),
    Way(0.03, 0.5, "no idea"),
    Way(0.03, 0.5, ""),
)


def answer_text(draw: random.Random, answer: int) -> str:
    """Draw one way to answer a question."""
    (way,) = draw.choices(WAYS, [way.share for way in WAYS])
    n = answer if draw.random() < way.right else answer + draw.choice((-1, 1, 1))
    marks = "!" * draw.randint(1, 8)
    return way.text.format(n=n, m=n + 1, k=n + draw.randint(2, 5), marks=marks)


@dataclass(slots=True)
class Sampled:
    """Responses to some questions, RESPONSES or more to each in turn."""

    ids_BS: Tensor
    mask_BT: Tensor
    texts: list[str]
    answers: list[str]


class Policy:
    """A policy that trains on a rule."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.questions, _ = split()
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=LR, weight_decay=0.0)

    def teach_ways(self, seed: int) -> None:
        """Teach the ways to answer, by supervised steps."""
        draw = random.Random(seed)
        pairs = [
            ([{"role": "user", "content": question}], answer_text(draw, int(answer)))
            for _ in range(VIEWS)
            for question, answer in self.questions
        ]
        tokens, labels = encode(self.tokenizer, pairs)
        warm_up(
            self.model,
            tokens,
            labels,
            steps=WARM_UP_STEPS,
            batch=WARM_UP_BATCH,
            lr=WARM_UP_LR,
            shuffler=draw,
            every=100,
        )

    def save(self, folder: Path) -> None:
        """Write a Hugging Face folder."""
        save(self.model, self.tokenizer, folder)

    @torch.no_grad()
    def sample(self, pairs: Sequence[tuple[str, str]], count: int) -> Sampled:
        """Draw `count` responses to each question at temperature 1."""
        prompts = [
            self.tokenizer.apply_chat_template(
                [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
            )
            for question, _ in pairs
        ]
        batch = self.tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
        width = batch["input_ids"].shape[1]
        ids_BS = self.model.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            do_sample=True,
            top_k=0,
            max_new_tokens=LONGEST,
            num_return_sequences=count,
            pad_token_id=0,
        )
        response_BT = ids_BS[:, width:]
        ended_BT = (response_BT == self.tokenizer.eos_token_id).cumsum(dim=1)
        mask_BT = ((ended_BT == 0) | ((ended_BT == 1) & (response_BT == 2))).float()
        texts = self.tokenizer.batch_decode(response_BT, skip_special_tokens=True)
        return Sampled(
            ids_BS, mask_BT, texts, [answer for _, answer in pairs for _ in range(count)]
        )

    def logprobs(self, ids_BS: Tensor, mask_BT: Tensor) -> Tensor:
        """Log-probabilities of the responses' tokens, [B, T]."""
        attention_BS = torch.cat([(ids_BS[:, : -mask_BT.shape[1]] != 0).float(), mask_BT], dim=1)
        positions_BS = (attention_BS.cumsum(dim=1) - 1).clamp(min=0).long()
        length = mask_BT.shape[1]
        logits = self.model(
            input_ids=ids_BS, attention_mask=attention_BS, position_ids=positions_BS
        ).logits[:, -length - 1 : -1]
        every = torch.log_softmax(logits.float(), dim=-1)
        return every.gather(2, ids_BS[:, -length:, None])[..., 0]

    def step(self, rule: Rule, draw: random.Random) -> dict[str, float]:
        """One step of GRPO. Return the means of reward and gold, and the length."""
        pairs = draw.sample(self.questions, PROMPTS)
        sampled = self.sample(pairs, RESPONSES)
        judged = list(zip(sampled.texts, sampled.answers, strict=True))
        rewards_B = torch.tensor([rule(*each) for each in judged])
        gold_B = torch.tensor([gold(*each) for each in judged])
        groups_B = torch.arange(PROMPTS).repeat_interleave(RESPONSES)
        advantages = estimator_named("grpo")(
            AdvantageInputs(
                rewards_B=rewards_B, group_ids_B=groups_B, response_mask_BT=sampled.mask_BT
            ),
            settings=AlgorithmConfig(),
        )
        with torch.no_grad():
            old_BT = self.logprobs(sampled.ids_BS, sampled.mask_BT)
        for part in torch.arange(len(groups_B)).chunk(UPDATES):
            self._update(sampled, part, advantages.advantages_BT, old_BT)
        return {
            "reward": float(rewards_B.mean()),
            "gold": float(gold_B.mean()),
            "length": float(sampled.mask_BT.sum(dim=1).mean()),
        }

    def _update(
        self, sampled: Sampled, part: Tensor, advantages_BT: Tensor, old_BT: Tensor
    ) -> None:
        mask_BT = sampled.mask_BT[part]
        inputs = LossInputs(
            logprobs_BT=self.logprobs(sampled.ids_BS[part], mask_BT),
            old_logprobs_BT=old_BT[part],
            advantages_BT=advantages_BT[part],
            mask_BT=mask_BT,
        )
        loss_BT, _ = loss_named("vanilla")(inputs, settings=ActorConfig())
        total = total_weight(mask_BT, "token-mean", max_length=LONGEST)
        ((loss_BT * mask_BT).sum() / total).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
