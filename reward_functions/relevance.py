"""A scalar model's view of how well a reply answers the question, squashed to 0..1 so that it can
be weighed beside other rewards.

Works with any pair encoder or scalar reward model; raw logits of such models differ in scale from
one another by a factor of ten. Give the checkpoint with reward.specs.relevance.path=<folder or hub
id>.
"""

import math

SPEC = {"kind": "bradley_terry"}
SCALE = 4.0  # logits of cross-encoders trained on MS MARCO lie between about -11 and 11


def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):
    questions = [
        prompt if isinstance(prompt, str) else prompt[-1]["content"] for prompt in text_prompts
    ]
    return [
        (question, reply[:1500]) for question, reply in zip(questions, text_responses, strict=True)
    ]


def rm_postprocess(results):
    return [1.0 / (1.0 + math.exp(-logit / SCALE)) for logit in results]
