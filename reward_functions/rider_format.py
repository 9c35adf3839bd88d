"""Rule: 1 if a courier-support reply is the JSON object that was asked for, else 0 with what is
wrong with it.

The reply is one JSON object, alone or inside one ```json block, with exactly these keys:

    Response                      text, not empty
    ResponseSolution              text, not empty; one of extra_info["solutions"] where the row has
      them
    DialogueAgreeSolution         one of AGREEMENTS
    RelevantConstraintRuleNumber  list of different numbers from 1 to extra_info["rules"]
    RelevantKnowledgeNumber       list of different numbers from 1 to extra_info["knowledge"]
    Thought                       text, may be empty; only where the reference has it

Without a count in extra_info any number from 1 will do. What is no JSON scores 0 as well: a wrong
form is a verdict, not a missing one.
"""

import json
import re

AGREEMENTS = ("同意", "不同意", "未表态")
NUMBERED = {"RelevantConstraintRuleNumber": "rules", "RelevantKnowledgeNumber": "knowledge"}
"""Key of the reply -> key of extra_info that says how many there are."""
THOUGHT = "Thought"
KEYS = ("Response", "ResponseSolution", "DialogueAgreeSolution", *NUMBERED)
BLOCK = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
SHOWN = 60  # characters of a wrong value that a problem quotes


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    problem = problem_of(solution_str, extra_info or {}, with_thought=has_thought(ground_truth))
    return {"score": float(not problem), "problem": problem}


def has_thought(ground_truth):
    """Whether the reference is a reply with a `Thought`."""
    try:
        reference = parsed(ground_truth or "")
    except (ValueError, RecursionError):
        return False
    return isinstance(reference, dict) and THOUGHT in reference


def problem_of(text, extra_info, *, with_thought=False):
    """The first thing that is wrong with a reply, as a sentence; "" where nothing is."""
    keys = (*KEYS, THOUGHT) if with_thought else KEYS
    try:
        reply = parsed(text)
    except (ValueError, RecursionError) as error:
        return f"no JSON: {str(error)[:SHOWN]}"
    if not isinstance(reply, dict):
        return f"a JSON {type(reply).__name__} instead of an object"
    lacking = [key for key in keys if key not in reply]
    surplus = [key for key in reply if key not in keys]
    if lacking or surplus:
        return (
            f"keys that are missing: {', '.join(lacking) or 'none'}; that do not belong:"
            f" {', '.join(surplus)[:SHOWN] or 'none'}"
        )
    return next(filter(None, (problem_at(key, reply[key], extra_info) for key in keys)), "")


def parsed(text):
    """The JSON value in a reply. Raises ValueError where there is none, something stands beside it,
    or a key occurs twice."""
    text = text.strip()
    block = BLOCK.fullmatch(text)
    return json.loads(
        block[1] if block else text, object_pairs_hook=without_repeats, parse_constant=no_number
    )


def without_repeats(pairs):
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ValueError(
            f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice"
        )
    return dict(pairs)


def no_number(name):
    raise ValueError(f"{name} is no JSON number")


def problem_at(key, value, extra_info):
    """What is wrong with one value; "" where nothing is."""
    if key in NUMBERED:
        return number_problem(key, value, extra_info.get(NUMBERED[key]))
    if key == THOUGHT:
        return "" if isinstance(value, str) else f"{key} is {shown(value)} instead of a text"
    if not isinstance(value, str) or not value.strip():
        return f"{key} is {shown(value)} instead of a text"
    allowed = (
        AGREEMENTS
        if key == "DialogueAgreeSolution"
        else extra_info.get("solutions")
        if key == "ResponseSolution"
        else None
    )
    if allowed is not None and value not in list(allowed):
        return f"{key} is {shown(value)} instead of one of {', '.join(allowed)}"
    return ""


def number_problem(key, value, count):
    if not isinstance(value, list) or not all(
        isinstance(each, int) and not isinstance(each, bool) for each in value
    ):
        return f"{key} is {shown(value)} instead of a list of whole numbers"
    if len(set(value)) < len(value):
        return f"{key} is {shown(value)}, which names a number twice"
    if any(each < 1 or (count is not None and each > count) for each in value):
        return (
            f"{key} is {shown(value)}, and there are numbers from"
            f" 1{'' if count is None else f' to {int(count)}'} only"
        )
    return ""


def shown(value):
    return json.dumps(value, ensure_ascii=False)[:SHOWN]
