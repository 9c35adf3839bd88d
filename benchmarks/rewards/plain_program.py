"""One reward model as a user without rmrl would run it: a program that loads it, scores one row at
a time, then all at once.

    python -m benchmarks.rewards.plain_program job.json

The job names model, rows and order; the answer is written beside it. Importing is part of loading,
as it is for any program.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
"""question, response, truth."""
Scores = list[tuple[float | None, str]]
"""(score, what the model wrote) of each row."""
Score = Callable[[Sequence[Row]], Scores]

FUNCTIONS = Path(__file__).resolve().parents[2] / "reward_functions"
BATCH = 32


def judge(path: str, device: str) -> tuple[Score, Callable[[], Any]]:
    """vllm.LLM; returns how to score and how to forget what was read."""
    from vllm import LLM, SamplingParams

    told = runpy.run_path(str(FUNCTIONS / "answer_judge.py"))
    place = (
        {"kv_cache_memory_bytes": 256 * 2**20, "enforce_eager": True}
        if device == "cpu"
        else {"gpu_memory_utilization": 0.5}
    )
    llm = LLM(
        model=path, dtype="bfloat16", max_model_len=1024, seed=0, disable_log_stats=True, **place
    )
    sampling = SamplingParams(temperature=0.0, max_tokens=16, stop=["\n"])

    def score(rows: Sequence[Row]) -> Scores:
        asked = told["rm_preprocess"](
            [row["question"] for row in rows], [row["response"] for row in rows], None
        )
        texts = [output.outputs[0].text for output in llm.chat(asked, sampling, use_tqdm=False)]
        verdicts = told["rm_postprocess"](texts, [row["truth"] for row in rows])
        return [
            (None if verdict is None else verdict["score"], text)
            for verdict, text in zip(verdicts, texts, strict=True)
        ]

    return score, llm.reset_prefix_cache


def scalar(path: str, device: str) -> tuple[Score, Callable[[], Any]]:
    """transformers, batches padded to their longest row."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    told = runpy.run_path(str(FUNCTIONS / "relevance.py"))
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = (
        AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.bfloat16)
        .to(device)
        .eval()
    )

    @torch.no_grad()
    def logits(pairs: Sequence[tuple[str, str]]) -> list[float]:
        texts, replies = zip(*pairs, strict=True)
        read = tokenizer(
            list(texts), list(replies), padding=True, truncation=True, return_tensors="pt"
        ).to(device)
        return model(**read).logits[:, 0].float().tolist()

    def score(rows: Sequence[Row]) -> Scores:
        pairs = told["rm_preprocess"](
            [row["question"] for row in rows], [row["response"] for row in rows], tokenizer
        )
        values = [
            value
            for start in range(0, len(pairs), BATCH)
            for value in logits(pairs[start : start + BATCH])
        ]
        return [(value, "") for value in told["rm_postprocess"](values)]

    return score, lambda: None


def embedder(path: str, device: str) -> tuple[Score, Callable[[], Any]]:
    """sentence-transformers; the score is the cosine of response and question."""
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(path, device=device, model_kwargs={"dtype": torch.bfloat16})

    def score(rows: Sequence[Row]) -> Scores:
        texts = [text for row in rows for text in (row["response"], row["question"])]
        vectors = model.encode(
            texts, batch_size=BATCH, convert_to_tensor=True, show_progress_bar=False
        ).float()
        vectors = torch.nn.functional.normalize(vectors, dim=-1)
        return [(float(vectors[i] @ vectors[i + 1]), "") for i in range(0, len(texts), 2)]

    return score, lambda: None


MODELS = {"judge": judge, "scalar": scalar, "embedder": embedder}


def main() -> None:
    """Load, score in the order asked for, write the answer."""
    job_file = Path(sys.argv[1])
    job = json.loads(job_file.read_text(encoding="utf-8"))
    score, forget = MODELS[job["model"]](job["path"], job["device"])
    rows: list[Row] = job["rows"]
    score(
        [{"question": "Warm?", "response": "Warm.", "truth": "1"}]
    )  # counts as loading: no side is timed on a first call
    answer: dict[str, Any] = {"load_s": time.time() - job["started"]}
    for how in job["order"]:
        forget()
        started = time.perf_counter()
        scores = (
            score(rows) if how == "batched" else [each for row in rows for each in score([row])]
        )
        answer[how] = {"score_s": time.perf_counter() - started, "scores": scores}
    answer["finished"] = time.time()
    job_file.with_suffix(".answer.json").write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
