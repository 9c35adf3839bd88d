"""The two judges on one checkpoint, in this process, and how their text is protected."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.attacks.trials import Solution

DROPIN = Path(__file__).resolve().parents[2] / "reward_functions/answer_judge.py"
ANSWERS = {"Yes": 1.0, "No": 0.0}
CHUNK = 128


@dataclass(frozen=True)
class Reading:
    """What the copying judge made of one text. `score`: 1, 0, or None without a verdict; `output`:
    what it wrote."""

    score: float | None
    output: str


class Judge:
    """The checkpoint, loaded when it is first asked. Equal inputs are read once."""

    def __init__(self, path: str, threads: int) -> None:
        from rmrl.cluster.devices import local_devices
        from rmrl.inference.environment import engine_environment

        self.device = local_devices("auto").kind
        os.environ.update(engine_environment(device=self.device, threads=threads))  # type: ignore[arg-type]
        from rmrl.config.schema import RewardEngineConfig
        from rmrl.inference.reward_engine_base import EngineSpec
        from rmrl.inference.vllm.reward_engine import VLLMEngine
        from rmrl.rewards.dropins.dropin import load_dropin
        from rmrl.rewards.kinds.shared.untrusted import neutraliser
        from rmrl.tokenizer import load_tokenizer

        self.tokenizer = load_tokenizer(path, trust_remote_code=False)
        self.neutral: Callable[[str], str] = neutraliser(self.tokenizer)
        self._dropin = load_dropin(DROPIN, DROPIN.stem)
        self._known: dict[Any, Any] = {}
        spec = EngineSpec(
            path=path,
            runner="generate",
            name="vllm",
            dtype="bfloat16",
            max_model_len=4096,
            max_num_seqs=64,
            max_num_batched_tokens=4096,
            tensor_parallel_size=1,
            gpu_memory_utilization=RewardEngineConfig().gpu_memory_utilization,
            kv_cache_bytes=2**30,
            device=self.device,  # type: ignore[arg-type]
            threads=threads,
            kwargs={
                "block_size": 32
            },  # of the prefix cache: the examples that prompts share are few tokens
        )
        self._engine = VLLMEngine(spec)
        self._started = False

    def copied(
        self, shown: Sequence[tuple[Solution, str]], *, fenced: bool = False
    ) -> list[Reading]:
        """answer_judge's verdicts on (solution, text shown in its place), as they are or fenced."""
        from rmrl.inference.reward_engine_base import GenerateRequest
        from rmrl.types import Sampling

        assert self._dropin.postprocess is not None
        spec = self._dropin.spec["sampling"]
        sampling = Sampling(
            max_tokens=spec["max_tokens"], temperature=spec["temperature"], stop=tuple(spec["stop"])
        )
        asked = self.asked_to_copy(shown, fenced=fenced)
        outputs = self._generated([GenerateRequest(self._ids(each), sampling) for each in asked])
        texts = [output.text for output in outputs]
        if fenced:
            texts = [
                self._fence(solution, text).clean(said)
                for (solution, text), said in zip(shown, texts, strict=True)
            ]
        verdicts = self._dropin.postprocess(texts, [solution.gold for solution, _ in shown])
        scores = [
            verdict["score"] if isinstance(verdict, dict) else verdict for verdict in verdicts
        ]
        return [Reading(score, text) for score, text in zip(scores, texts, strict=True)]

    def asked_to_copy(
        self, shown: Sequence[tuple[Solution, str]], *, fenced: bool = False
    ) -> list[Any]:
        """answer_judge's messages. Fenced: the reply's end between marks, and the note atop the
        message that shows it.

        There it is near what it speaks of, and the examples before it stay alike in all prompts,
        which the prefix cache needs.
        """
        assert self._dropin.preprocess is not None
        texts, fences = (
            [text for _, text in shown],
            [self._fence(solution, text) for solution, text in shown],
        )
        if fenced:
            texts = [fence.wrap(fence.text) for fence in fences]
        asked = self._dropin.preprocess(
            [solution.question for solution, _ in shown], texts, self.tokenizer
        )
        if not fenced:
            return list(asked)
        return [
            [*turns, last | {"content": f"{fence.note()}\n\n{last['content']}"}]
            for (*turns, last), fence in zip(asked, fences, strict=True)
        ]

    def yes(self, shown: Sequence[tuple[Solution, str]], *, fenced: bool = False) -> list[float]:
        """How probable Yes is against No where the shipped template asks whether the response is
        correct; NaN where it is not told."""
        from rmrl.inference.reward_engine_base import GenerateRequest
        from rmrl.rewards.kinds.judge.token_scores import ScoreTokens
        from rmrl.rewards.kinds.shared.rendering import tokenize
        from rmrl.types import Sampling

        answers = ScoreTokens(ANSWERS, self.tokenizer, where="yes")
        sampling, requests = Sampling(max_tokens=1, temperature=0.0), []
        for solution, text in shown:
            read = tokenize(
                self._asked_whether(solution, text, fenced),
                self.tokenizer,
                generation_prompt=True,
                where="yes",
            )
            requests.append(
                GenerateRequest(
                    read.token_ids, sampling, choice_tokens=answers.ids_after(read.text)
                )
            )
        found = [answers.score(output.choice_logprobs) for output in self._generated(requests)]
        return [math.nan if score is None else score[0] for score in found]

    def _asked_whether(self, solution: Solution, text: str, fenced: bool) -> Any:
        from rmrl.rewards.kinds.generative.reward import CHECK
        from rmrl.rewards.kinds.judge.asking import answer_form, fill, template
        from rmrl.rewards.kinds.shared.rendering import Exhibit, as_judge_input
        from rmrl.rewards.kinds.shared.untrusted import new_fence

        fence = new_fence(text, salt=solution.question)
        told = {
            "prompt": solution.question,
            "response": fence.wrap(text) if fenced else text,
            "question": CHECK,
        }
        told["answer"] = answer_form(scale=(), choices=tuple(ANSWERS))
        return as_judge_input(
            fill(template("judge"), told), Exhibit(told["response"], fence, fenced), self.tokenizer
        )

    def _fence(self, solution: Solution, text: str) -> Any:
        """Of the part that is shown: answer_judge takes the last TAIL characters, so less is left
        for the text between the marks."""
        from rmrl.rewards.kinds.shared.untrusted import new_fence

        assert self._dropin.preprocess is not None
        room = self._dropin.preprocess.__globals__["TAIL"] - len(new_fence("").wrap(""))
        return new_fence(text[-room:], salt=solution.question)

    def _ids(self, messages: Any) -> tuple[int, ...]:
        from rmrl.rewards.kinds.shared.rendering import tokenize

        return tokenize(
            messages, self.tokenizer, generation_prompt=True, where="answer_judge"
        ).token_ids

    def _generated(self, requests: Sequence[Any]) -> list[Any]:
        if not self._started:
            self._engine.start()
            self._started = True
        fresh = [request for request in dict.fromkeys(requests) if request not in self._known]
        for start in range(0, len(fresh), CHUNK):
            chunk = fresh[start : start + CHUNK]
            print(f"{time.strftime('%H:%M:%S')} {start} of {len(fresh)} read", file=sys.stderr)
            self._known |= zip(
                chunk, (output[0] for output in self._engine.generate(chunk)), strict=True
            )
        return [self._known[request] for request in requests]
