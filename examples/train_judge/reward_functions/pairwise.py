"""Group judge: which of two responses is better, in both orders. Its prompt is the one that
examples/train_judge/make_data.py writes for the policy, so that a trained judge is measured as it
was trained.
"""

from rmrl.rewards.judging.verdicts import last_choice

SPEC = {"kind": "group", "both_orders": True, "sampling": {"temperature": 0.0, "max_tokens": 160}}

ASK = (
    "Two replies to a question follow. Say in a sentence or two which one answers it better, and"
    " why. A longer reply is not better for its length, and neither is the first one for its place."
    " End with [[A]] or [[B]].\n\nQuestion:\n{question}\n\nReply A:\n{a}\n\nReply B:\n{b}"
)


def asked(question, a, b):
    """The judge's prompt, as messages."""
    if not isinstance(question, str):
        question = "\n\n".join(turn["content"] for turn in question)
    return [{"role": "user", "content": ASK.format(question=question, a=a, b=b)}]


def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):
    return [
        asked(question, a, b) for question, (a, b) in zip(text_prompts, text_responses, strict=True)
    ]


def rm_postprocess(results):
    return [{"A": 1.0, "B": 0.0}.get(last_choice(text, ["A", "B"])) for text in results]
