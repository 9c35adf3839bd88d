"""How near a support reply is to the reference, as the similarity server of VeRL-with-RMs and its
0.7 * similarity + 0.3 had it.

The two `Response` texts are embedded. Their cosine c goes through that server's curve

    0.1 where c <= 0.65;   1 where c >= 0.85;   else 0.1 + 1.69811 * (10000**c / 10000**0.9 - 0.1)

and a reply that is no JSON with a `Response` scores 0. Replies to references that are no such JSON
are compared as whole texts. The embedding model is reward.specs.<name>.path=<folder or hub id>,
there BAAI/bge-large-zh-v1.5.
"""

import json

SPEC = {"kind": "similarity"}
LOW, HIGH = 0.65, 0.85
SLOPE = 1.69811
FLOOR = 0.1


def rm_preprocess(text_prompts, text_responses, tgt_tokenizer, ground_truths):
    pairs = []
    for reply, truth in zip(text_responses, ground_truths, strict=True):
        reference = said(truth or "")
        if truth is None:
            pairs.append(reply)  # the kind reports which row lacks a reference
        elif reference is None:
            pairs.append((reply, truth))
        else:
            pairs.append((said(reply) or reply, reference))
    return pairs


def rm_postprocess(results, responses, ground_truths):
    return [score(*each) for each in zip(results, responses, ground_truths, strict=True)]


def score(cosine, response, truth):
    broken = said(truth) is not None and said(response) is None
    return 0.0 if broken else 0.7 * curve(cosine) + 0.3


def curve(cosine):
    if cosine <= LOW:
        return FLOOR
    if cosine >= HIGH:
        return 1.0
    return FLOOR + SLOPE * (10000 ** (cosine - 0.9) - 0.1)


def said(text):
    """The `Response` of a reply; None where it is no such JSON."""
    try:
        reply = json.loads(text[text.find("{") : text.rfind("}") + 1])
    except (ValueError, RecursionError):
        return None
    found = reply.get("Response") if isinstance(reply, dict) else None
    return found if isinstance(found, str) and found.strip() else None
