"""Generate courier-support dialogues as a jsonl file: the data of the customer-service example.

    python examples/rider/make_data.py --out examples/rider/dialogues.jsonl --count 48

Couriers write to support about late orders, wrong addresses, spilled food, fines, accidents. Each
row has `input` (what the policy is told), `grm_input` (what each judge is told) and `target` (a
reply that follows the rules). Everything follows from --seed; no row occurs twice.
"""

# ruff: noqa: RUF001
# Chinese text has the punctuation of Chinese.

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

AGREE, REFUSE, OPEN = "同意", "不同意", "未表态"
"""What a courier thinks of the solution at the end of a dialogue: the values of
DialogueAgreeSolution."""
SOLUTIONS = ("延长时限", "取消订单", "登记报备", "申诉复核", "转接专员", "无")
"""What support can do: the values of ResponseSolution."""
TASK = (
    "你是骑手客服。阅读对话、规则和知识，写出客服的下一句回复，只输出一个JSON对象，包含五个键："
    "Response（回复原文）、ResponseSolution（承诺的方案）、"
    "DialogueAgreeSolution（骑手是否同意方案：同意、不同意、未表态）、"
    "RelevantConstraintRuleNumber（用到的规则编号列表）、"
    "RelevantKnowledgeNumber（用到的知识编号列表）。"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One kind of trouble. Texts hold places such as {minutes} that `draw` fills."""

    opening: str
    detail: str
    """The courier's second turn; where `asked` stands between, support has asked for it."""
    asked: str
    mood: str
    solution: str
    reply: str
    rule: str
    """The rule that decides the case."""
    fact: str
    """The knowledge that the reply uses; "" where it uses none."""


SCENES = (
    Scene(
        opening="商家出餐太慢，我等了{minutes}分钟，订单{order}要超时了。",
        asked="请问商家现在出餐了吗？",
        detail="还没有，能不能给我加点时间？",
        mood=AGREE,
        solution="延长时限",
        reply="您好，等了{minutes}分钟辛苦您了。订单{order}已为您延长配送时限，请安心取餐，路上注意安全。",
        rule="商家出餐等待超过{limit}分钟，可以延长配送时限。",
        fact="延长时限后，本单不计超时。",
    ),
    Scene(
        opening="订单{order}的地址是错的，顾客其实在{place}。",
        asked="您联系过顾客了吗？",
        detail="打了{calls}次电话，顾客让我送过去，可是多出{km}公里。",
        mood=OPEN,
        solution="延长时限",
        reply=(
            "您好，多跑{km}公里确实不容易。已为订单{order}延长配送时限，请按顾客确认的{place}送达即可。"
        ),
        rule="顾客确认新地址后，可以延长配送时限，不得要求骑手垫付费用。",
        fact="改地址产生的距离补贴在次日到账。",
    ),
    Scene(
        opening="刚才路滑，订单{order}的汤洒了。",
        asked="您人有没有受伤？",
        detail="人没事，餐洒了一半，会不会让我赔？",
        mood=OPEN,
        solution="登记报备",
        reply="您好，人没事就好。订单{order}的餐损已为您登记报备，责任判定前不会扣款，请保留照片。",
        rule="餐品损坏须先登记报备，判定前不得承诺免赔。",
        fact="餐损判定一般需要{hours}小时。",
    ),
    Scene(
        opening="我被扣了{money}元，说订单{order}提前点送达，我不服。",
        asked="请问送达时您在顾客门口吗？",
        detail="就在{place}楼下，我有照片。",
        mood=AGREE,
        solution="申诉复核",
        reply=(
            "您好，扣款{money}元让您着急了。订单{order}已为您提交申诉复核，请上传现场照片，"
            "结果会在{hours}小时内通知。"
        ),
        rule="对处罚有异议且有凭证的，可以提交申诉复核，不得承诺一定撤销。",
        fact="申诉结果在{hours}小时内通知。",
    ),
    Scene(
        opening="我在{place}被车撞了，腿很疼，还有订单{order}没送。",
        asked="请先保证安全，需要帮您叫救护车吗？",
        detail="已经叫了，订单怎么办？",
        mood=OPEN,
        solution="转接专员",
        reply="您好，请您先就医，别担心订单。订单{order}由我们处理，现在为您转接专员跟进保险。",
        rule="骑手受伤的，须优先关心人身安全并转接专员，不得催促配送。",
        fact="意外险报案须在{hours}小时内完成。",
    ),
    Scene(
        opening="顾客电话打了{calls}次都不接，订单{order}送不出去。",
        asked="您到{place}多久了？",
        detail="等了{minutes}分钟，我后面还有单。",
        mood=AGREE,
        solution="取消订单",
        reply="您好，等了{minutes}分钟辛苦了。订单{order}已为您取消订单处理，不影响您的考核，请妥善处理餐品。",
        rule="联系顾客{calls}次未果且等待超过{limit}分钟，可以取消订单。",
        fact="无责取消不影响考核。",
    ),
    Scene(
        opening="车坏在{place}了，订单{order}送不了。",
        asked="为您延长时限可以吗？",
        detail="延长没用，车推不动，我不要延长。",
        mood=REFUSE,
        solution="取消订单",
        reply="您好，理解您的难处，延长时限确实帮不上您。订单{order}已为您取消订单，请先把车推到安全的地方。",
        rule="车辆故障无法继续配送的，可以取消订单。",
        fact="无责取消不影响考核。",
    ),
    Scene(
        opening="我要求马上给我补{money}元，下雨天跑单太亏了。",
        asked="天气补贴由系统统一发放，请您耐心等待，可以吗？",
        detail="不行，现在就要。",
        mood=REFUSE,
        solution="无",
        reply=(
            "您好，雨天跑单辛苦了。客服不能直接补发{money}元，"
            "天气补贴会在{hours}小时内由系统统一发放，请您留意账单。"
        ),
        rule="客服不得承诺补发现金。",
        fact="天气补贴在{hours}小时内统一发放。",
    ),
)
OTHER_RULES = (
    "不得泄露顾客的电话和住址。",
    "不得使用责备或威胁的语气。",
    "不得承诺规则以外的补偿。",
    "不得让骑手私下联系商家退款。",
)
OTHER_FACTS = (
    "客服电话全天开通。",
    "骑手等级每月更新一次。",
    "健康证到期前须重新上传。",
    "装备可以在商城领取。",
)
PLACES = ("东门", "南门", "西区", "北区", "一号楼", "三号楼", "广场", "地铁口")


def draw(random_: random.Random, number: int) -> dict[str, Any]:
    """Row `number` with everything in it drawn: slots, order of rules and knowledge."""
    scene = SCENES[number % len(SCENES)]
    slots = _slots(random_)
    rules, rule_at = _numbered(random_, _fill(scene.rule, slots), OTHER_RULES)
    facts, fact_at = _numbered(random_, _fill(scene.fact, slots), OTHER_FACTS)
    turns = (("骑手", scene.opening), ("客服", scene.asked), ("骑手", scene.detail))
    dialogue = "\n".join(f"{who}：{_fill(text, slots)}" for who, text in turns)
    told = f"【对话】\n{dialogue}\n【规则】\n{rules}\n【知识】\n{facts}\n【方案】\n{'、'.join(SOLUTIONS)}"
    return {
        "input": [{"role": "system", "content": TASK}, {"role": "user", "content": told}],
        "grm_input": {
            "rider_reward": f"【对话】\n{dialogue}\n【规则】\n{rules}\n【知识】\n{facts}",
            "consistency_reward": f"【对话】\n{dialogue}\n【方案】\n{'、'.join(SOLUTIONS)}",
        },
        "target": {
            "Response": _fill(scene.reply, slots),
            "ResponseSolution": scene.solution,
            "DialogueAgreeSolution": scene.mood,
            "RelevantConstraintRuleNumber": [rule_at],
            "RelevantKnowledgeNumber": [fact_at],
        },
    }


def _slots(random_: random.Random) -> Mapping[str, str]:
    """Values that agree with one another: couriers wait longer than the limit."""
    limit = random_.choice((5, 10, 15))
    drawn = {
        "minutes": limit + random_.randint(1, 20),
        "limit": limit,
        "order": random_.randint(1000, 9999),
        "place": random_.choice(PLACES),
        "calls": random_.randint(3, 5),
        "km": random_.randint(1, 6),
        "money": random_.choice((5, 10, 20, 30, 50)),
        "hours": random_.choice((12, 24, 48, 72)),
    }
    return {name: str(value) for name, value in drawn.items()}


def _fill(text: str, slots: Mapping[str, str]) -> str:
    return text.format_map(slots)


def _numbered(random_: random.Random, deciding: str, others: Sequence[str]) -> tuple[str, int]:
    """(numbered lines with `deciding` somewhere among two of `others`, its number)."""
    lines = [deciding, *random_.sample(others, 2)]
    random_.shuffle(lines)
    return (
        "\n".join(f"{i}. {line}" for i, line in enumerate(lines, start=1)),
        lines.index(deciding) + 1,
    )


def rows(seed: int) -> Iterator[dict[str, Any]]:
    """An endless stream of different rows, the scenes in turn; the same for the same seed."""
    random_, seen, number = random.Random(seed), set[str](), 0
    while True:
        row = draw(random_, number)
        told = row["input"][1]["content"]
        if told not in seen:
            seen.add(told)
            number += 1
            yield row


def main(argv: Sequence[str] | None = None) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(
        description="Generate courier-support dialogues as a jsonl file."
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("examples/rider/dialogues.jsonl"),
        help="file to write (default: %(default)s)",
    )
    parser.add_argument("--count", type=int, default=48, help="dialogues (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="same seed, same file (default: %(default)s)"
    )
    options = parser.parse_args(argv)
    if options.count < 1:
        parser.error(f"--count {options.count}: ask for at least 1 dialogue.")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(row, ensure_ascii=False) + "\n"
        for _, row in zip(range(options.count), rows(options.seed), strict=False)
    ]
    options.out.write_text("".join(lines), encoding="utf-8")
    print(f"{options.out}: {options.count} dialogues")


if __name__ == "__main__":
    main()
