"""A judge that reads a reply and states its final answer; the score is 1 where that equals the
reference, else 0.

Small instruct models copy an answer out of free text far more reliably than they say whether it is
right, so the judge reads and this file compares. Give its checkpoint with
reward.specs.answer_judge.path=<folder or hub id>.
"""

import re

# Not fenced: the judge only copies, this file compares, and the tail of a fenced reply would have
# an end without a beginning.
SPEC = {
    "kind": "generative",
    "fence": False,
    "sampling": {"temperature": 0.0, "max_tokens": 16, "stop": ["\n"]},
}

ASK = (
    "Reply: {reply}\n\nWhat is the final answer of this reply? Copy it as a number, nothing else."
    " If there is none, say none."
)
SHOWN = (
    ("Tom has 3 apples and buys 4 more, so he has 3 + 4 = 7 apples.", "7"),
    ("6 * 8 = 48. Then 48 - 10 = 38.\n#### 38", "38"),
    ("-15", "-15"),
    ("The total cost is $12 + $30 = $42.", "42"),
    # Last, because a judge that finds nothing repeats the last answer it saw: a number there would
    # be right now and then.
    ("I am not sure about that.", "none"),
)
# characters: the answer stands at the end, and a very long reply must not push the question out
TAIL = 1200
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):
    shown = [{"role": "system", "content": "You read a reply and copy its final answer."}]
    for reply, answer in SHOWN:
        shown += [
            {"role": "user", "content": ASK.replace("{reply}", reply)},
            {"role": "assistant", "content": answer},
        ]
    return [
        [*shown, {"role": "user", "content": ASK.replace("{reply}", text[-TAIL:])}]
        for text in text_responses
    ]


def rm_postprocess(results, ground_truths):
    return [verdict(text, truth) for text, truth in zip(results, ground_truths, strict=True)]


def verdict(text, truth):
    """1 or 0; None when the judge copied nothing (silence, a remark of its own), or there is no
    reference to compare with."""
    found = NUMBER.search(text)
    copied = (
        found is not None or len(text.split()) == 1
    )  # one word: an answer that is no number, or "none"
    if truth is None or not copied:
        return None
    if found is None:
        return {"score": float(text.strip() == str(truth).strip()), "read": text.strip()}
    return {"score": float(number(found[0]) == number(truth)), "read": found[0]}


def number(text):
    try:
        return float(text.replace(",", "").replace("$", "").strip())
    except ValueError:
        return text.strip()
