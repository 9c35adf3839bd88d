"""The policy judges the same pair in the other order: 1 where both verdicts name the same reply.

Its prompt is the row's rm_prompt_consistent. The answer is greedy and the same for a whole group,
so each pair is asked about once.
"""

from rmrl.rewards.judging.verdicts import last_choice

SPEC = {"kind": "generative", "path": "policy", "sampling": {"temperature": 0.0, "max_tokens": 160}}


def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):
    return [
        prompt if not isinstance(prompt, str) else [{"role": "user", "content": prompt}]
        for prompt in text_prompts
    ]


def rm_postprocess(results, responses):
    scores = []
    for text, response in zip(results, responses, strict=True):
        swapped = last_choice(text, ["A", "B"])
        verdict = last_choice(response, ["A", "B"])
        # The same reply has the other letter in the other order.
        scores.append(float(None not in (verdict, swapped) and verdict != swapped))
    return scores
