"""A judge that says whether a courier-support reply promises what it declares: 1 where Response and
ResponseSolution agree, else 0.

The judge is told the row's rm_prompt_consistency_reward (dialogue, possible solutions) and the
whole reply; structured output keeps even a very small judge readable. Its checkpoint is
reward.specs.consistency_reward.path=<folder or hub id>. Let a large one argue first with
sampling.regex='' under reward.specs.consistency_reward: the last verdict counts.
"""

# ruff: noqa: RUF001
# Chinese text has the punctuation of Chinese.

import re

SPEC = {
    "kind": "generative",
    "sampling": {"temperature": 0.0, "max_tokens": 128, "regex": r'\{"consistent": [01]\}'},
}

SYSTEM = (
    "你是外卖骑手客服的质检员。客服的回复是JSON：Response是对骑手说的话，"
    "ResponseSolution是登记的方案。"
    "请判断Response里承诺的处理与ResponseSolution是否一致：一致记1；承诺了别的方案、"
    "没有承诺登记的方案、或登记为“无”却作出承诺，记0。\n"
    '最后只用一行JSON给出结论：{"consistent": 0或1}'
)
ASK = "{case}\n\n【客服的回复】\n{reply}\n\n请给出JSON结论。"
VERDICT = re.compile(r"""["']consistent["']\s*:\s*["']?([01])(?![\w.])""")


def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):
    asked = [
        ASK.format(case=case(prompt), reply=reply)
        for prompt, reply in zip(text_prompts, text_responses, strict=True)
    ]
    return [
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        for question in asked
    ]


def case(prompt):
    """What the judge is told of the case; of a conversation each turn in its own paragraph."""
    return prompt if isinstance(prompt, str) else "\n\n".join(turn["content"] for turn in prompt)


def rm_postprocess(results):
    said = [VERDICT.findall(text) for text in results]
    return [float(found[-1]) if found else None for found in said]
