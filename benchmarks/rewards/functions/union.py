"""Both judges as one: which question a row gets stands in its data_source."""

from benchmarks.rewards.wordings import SAMPLING, checking, copying, written

SPEC = {"kind": "generative", "fence": False, "sampling": SAMPLING}


def rm_preprocess(text_prompts, text_responses, tgt_tokenizer, data_sources):  # noqa: ARG001
    """The question of `copies` or of `checks`."""
    return [
        (copying if source == "copies" else checking)(text)
        for text, source in zip(text_responses, data_sources, strict=True)
    ]


rm_postprocess = written
