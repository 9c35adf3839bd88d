"""How near a courier-support reply is to the reference: the two `Response` texts are embedded, not
the JSON around them.

JSON of one form is alike whatever it says, so comparing whole replies would score the form. Give an
embedding model of the replies' language with reward.specs.rider_similarity.path=<folder or hub id>.
"""

import json

from rmrl.rewards.kinds.similarity.reward import curve_value

SPEC = {"kind": "similarity"}
CURVE = ((0.65, 0.1), (0.85, 1.0))
"""(cosine, score): 0.1 up to the first point, 1.0 from the last, exponential between."""


def rm_preprocess(text_prompts, text_responses, tgt_tokenizer, ground_truths):
    # A row without a reference stays a plain text: the kind then says which row lacks one.
    return [
        said(reply) if truth is None else (said(reply), said(truth))
        for reply, truth in zip(text_responses, ground_truths, strict=True)
    ]


def rm_postprocess(results):
    return [curve_value(cosine, CURVE) for cosine in results]


def said(text):
    """The `Response` of a reply; the whole text where it is no such JSON."""
    try:
        reply = json.loads(text[text.find("{") : text.rfind("}") + 1])
    except (ValueError, RecursionError):
        return text
    found = reply.get("Response") if isinstance(reply, dict) else None
    return found if isinstance(found, str) and found.strip() else text
