""""""

from rmrl.inference.vllm.sampling import (
    sampling_params,
)
from rmrl.types import Sampling
from tests.engine_process import run_in_engine_process


def described() -> list[tuple[object, ...]]:
    asked = [
        Sampling(max_tokens=3, choice=("a", "b")),
        Sampling(max_tokens=3, regex="[0-9]"),
        Sampling(max_tokens=3, json_schema='{"type": "integer"}'),
        Sampling(max_tokens=3, temperature=0.0, n=4, top_k=-1),
    ]
    made = [sampling_params(a, logprob_token_ids=[7, 8]) for a in asked]
    structured = [p.structured_outputs for p in made]
    rows = [(s.choice, s.regex, s.json) if s else None for s in structured]
    return [*rows, (made[3].n, made[3].top_k, made[3].logprob_token_ids, made[0].n)]


def test_vllm_parameters() -> None:
    assert run_in_engine_process(described) == [
        (["a", "b"], None, None),
        (None, "[0-9]", None),
        (None, None, '{"type": "integer"}'),
        None,
        (1, 0, [7, 8], 1),  # equal greedy samples are drawn once; 0 switches top_k off
    ]
