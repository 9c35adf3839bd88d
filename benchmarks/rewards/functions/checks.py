"""One of two judges on one checkpoint."""

from benchmarks.rewards.wordings import SAMPLING, checking, written

SPEC = {"kind": "generative", "fence": False, "sampling": SAMPLING}


def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):  # noqa: ARG001
    """Its question on each reply."""
    return [checking(text) for text in text_responses]


rm_postprocess = written
