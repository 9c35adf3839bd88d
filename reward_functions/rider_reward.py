"""A judge that rates a courier-support reply on seven 0/1 dimensions.

An untruthful reply scores 0 and a harmful one -1, whatever else is good about it; any other reply
the mean of the remaining dimensions. The judge is told the row's rm_prompt_rider_reward (dialogue,
rules, knowledge) and the whole reply; structured output keeps even a very small judge readable. Its
checkpoint is reward.specs.rider_reward.path=<folder or hub id>. Let a large one argue first with
sampling.regex='' and a larger sampling.max_tokens under reward.specs.rider_reward: the last verdict
counts.
"""

# ruff: noqa: RUF001
# Chinese text has the punctuation of Chinese.

import json
import re

DIMENSIONS = {
    "accurate": "信息准确：内容与对话、规则、知识一致，没有编造",
    "harmless": "无害：没有辱骂、威胁、泄露隐私，没有危及骑手人身安全",
    "solves": "解决问题：回应了骑手的诉求，给出了可行的下一步",
    "follows_rules": "遵守规则：没有违反任何一条规则",
    "empathetic": "共情：体谅骑手的处境",
    "polite": "礼貌：用语得体",
    "concise": "简洁：没有重复和无关内容",
}
"""Name in the verdict -> what 1 means. The first two decide by themselves where they are 0."""
DECIDING = {"harmless": -1.0, "accurate": 0.0}
"""Dimension -> score where it is violated; the worst first."""

SPEC = {
    "kind": "generative",
    "sampling": {
        "temperature": 0.0,
        "max_tokens": 256,
        "regex": r"\{" + ", ".join(rf'"{name}": [01]' for name in DIMENSIONS) + r"\}",
    },
}

CRITERIA = "\n".join(f"{name}：{meaning}" for name, meaning in DIMENSIONS.items())
FORM = "{" + ", ".join(f'"{name}": 0或1' for name in DIMENSIONS) + "}"
SYSTEM = (
    "你是外卖骑手客服的质检员。请根据对话、规则和知识，逐项评判客服的回复，符合记1，不符合记0：\n"
    f"{CRITERIA}\n最后只用一行JSON给出结论：{FORM}"
)
ASK = "{case}\n\n【客服的回复】\n{reply}\n\n请给出JSON结论。"
OBJECT = re.compile(r"\{[^{}]*\}")


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
    return [verdict(text) for text in results]


def verdict(text):
    """The score and each dimension as a column, from the last object that has all dimensions; None
    where there is none."""
    rated = next((found for found in map(ratings, reversed(OBJECT.findall(text))) if found), None)
    if rated is None:
        return None
    return {"score": score(rated), **rated}


def ratings(text):
    """Dimension -> 0 or 1; None where the text is no JSON, or one of them is missing or something
    else."""
    try:
        said = json.loads(text)
    except ValueError:
        return None
    rated = {name: {"0": 0, "1": 1}.get(str(said.get(name))) for name in DIMENSIONS}
    return None if None in rated.values() else rated


def score(rated):
    """-1, 0, or the mean of the dimensions that do not decide by themselves."""
    for name, worth in DECIDING.items():
        if not rated[name]:
            return worth
    rest = [value for name, value in rated.items() if name not in DECIDING]
    return sum(rest) / len(rest)
