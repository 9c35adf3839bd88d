"""How each status is brought about in each kind of reward, at the place where it arises; or why it
cannot arise there.

An injection makes the row `BAD` fail and leaves the others alone. It is put into the engine, the
server or the user's function, never into the score.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmrl.inference.reward_engine_base import FAILURES, EngineSpec
from rmrl.rewards.dropins.dropin import load_dropin
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.code.reward import CodeReward
from rmrl.rewards.kinds.critique.reward import CritiqueReward
from rmrl.rewards.kinds.ensemble.reward import Ensemble
from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.kinds.group.reward import GroupReward
from rmrl.rewards.kinds.remote.reward import Options, http_spec
from rmrl.rewards.kinds.rubric.reward import RubricReward
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import STATUSES, Conversation, Prompt, Sampling
from tests.patience import PATIENCE_S, expires
from tests.rewards.parts import ENGINE, rule
from tests.rewards.remote.server import Reply, Seen

BAD = "bad"
"""The response that fails, and its ground truth."""
BAD_TOKENS = " ".join(str(ord(character) - 28) for character in BAD)
"""As the fake engine's script sees it: ids of single characters, space being 4."""

TEXT_KINDS = ("generative", "critique", "group")
DROPIN_KINDS = (*TEXT_KINDS, "rubric", "bradley_terry", "process", "similarity")
ENGINE_KINDS = (*DROPIN_KINDS, "teacher")
RUNNERS = {"bradley_terry": "pooling", "process": "token_pooling", "similarity": "embed"}


@dataclass(frozen=True, kw_only=True)
class Injection:
    """What is set up so that one row fails."""

    script: Mapping[str, Any] = field(default_factory=dict)
    """Of the fake engine: its kwargs."""
    verdict: str = ""
    """Python expression that the drop-in's rm_postprocess gives for the row; "": there is no
    drop-in."""
    body: str = "return len(solution_str)"
    """Of a rule."""
    reply: Reply | None = None
    """What a server answers."""
    timeout_s: float = PATIENCE_S
    reported: Any = None
    """What the tester of a service that runs code reports for the row: [passed, detail] of its
    test."""
    gate: bool = False
    """A rule that is 0 on the row is a gate of the reward."""
    criteria_from: str = ""
    """Field of the rows with a rubric's criteria, which cannot be read in the row that fails."""
    holistic: bool = False
    """A rubric reward's judge writes one number."""
    ungiven: bool = False
    """The environment gave the row that fails another reward."""
    meta: bool = False
    """A judge (generative, group) votes three times, and a second model, whose script it then is,
    keeps two votes."""


FINE = Injection()
GATE = Injection(gate=True)


def _says(text: str, *, holistic: bool = False) -> Injection:
    return Injection(script={"text": "1", "texts": {BAD_TOKENS: text}}, holistic=holistic)


def _injections() -> dict[tuple[str, str], Injection]:
    found = {
        (status, kind): Injection(script=_fails(status))
        for status in FAILURES
        for kind in ENGINE_KINDS
    }
    found |= {("ok", kind): FINE for kind in REWARD_KINDS}
    found |= {("skipped", kind): GATE for kind in REWARD_KINDS}
    found |= {("unparseable", kind): Injection(verdict="None") for kind in DROPIN_KINDS}
    found |= {("user_error", kind): Injection(verdict="'garbage'") for kind in DROPIN_KINDS}
    # Only the holistic form of a rubric writes anything that has to be read.
    found["unparseable", "rubric"] = _says("so so", holistic=True)
    found["judge_refused", "rubric"] = _says("I'm sorry, I can't help with that.", holistic=True)
    found["judge_truncated", "rubric"] = _says(" ".join(["hm"] * 20), holistic=True)
    # The row's own criteria cannot be read; see `rows` of the status matrix.
    found["user_error", "rubric"] = Injection(criteria_from="extra_info.rubrics")
    for kind in TEXT_KINDS:
        found["unparseable", kind] = _says("" if kind == "critique" else "so so")
        found["judge_refused", kind] = _says("I'm sorry, I can't help with that.")
        found["judge_truncated", kind] = _says(" ".join(["hm"] * 20))
    found |= {
        ("unparseable", "rule"): Injection(
            body="return None if solution_str == 'bad' else len(solution_str)"
        ),
        ("user_error", "rule"): Injection(
            body="return 1 / 0 if solution_str == 'bad' else len(solution_str)"
        ),
        ("worker_lost", "rule"): Injection(
            body="return __import__('os')._exit(9) if solution_str == 'bad' else len(solution_str)"
        ),
        ("timeout", "rule"): Injection(
            body="import time; time.sleep(600 * (solution_str == 'bad')); return len(solution_str)",
            timeout_s=expires(0.5),
        ),
        ("provider_error", "remote"): Injection(reply=Reply({"detail": "broken"}, status=500)),
        ("timeout", "remote"): Injection(reply=Reply(1.0, delay_s=600.0)),
        ("provider_error", "code"): Injection(
            reply=Reply({"status": "SandboxError", "message": "no container"})
        ),
        ("timeout", "code"): Injection(reply=Reply({}, delay_s=600.0)),
        ("user_error", "code"): Injection(reported=["unfit", "the test is no Python"]),
        ("worker_lost", "code"): Injection(reported=["lost", "no process left"]),
        ("user_error", "environment"): Injection(ungiven=True),
    }
    return found | {
        (status, "ensemble"): found[status, "generative"]
        for status, kind in found
        if kind == "generative"
    }


def _fails(status: str) -> dict[str, Any]:
    return {"text": "1", "failures": {BAD_TOKENS: status, BAD: status}}


INJECTIONS = _injections()

_NO_TEXT = "the model gives numbers and writes no text that could be cut off"
_NO_JUDGE = (
    "nobody is asked for words: there is nothing to cut off, to refuse or to be too long for a"
    " context"
)
_NO_SERVER = "it runs in a process of ours; its death is worker_lost, and its exception user_error"
_PLAYED = (
    "its number is there before the reward is asked; what the harness recorded as an error is the"
    " status of every reward of the row"
)
_RAISES = "a step that is cancelled ends with CancelledError and leaves no results"

IMPOSSIBLE: Mapping[tuple[str, str], str] = {
    ("judge_truncated", "bradley_terry"): _NO_TEXT,
    ("judge_truncated", "process"): _NO_TEXT,
    ("judge_truncated", "similarity"): _NO_TEXT,
    ("judge_truncated", "teacher"): _NO_TEXT,
    ("unparseable", "teacher"): "a log-probability is a number, and nothing is read out of a text",
    (
        "user_error",
        "teacher",
    ): "no function of the user's runs; a response of no token, which has it, is no row of these",
    ("judge_truncated", "rule"): _NO_JUDGE,
    ("judge_refused", "rule"): _NO_JUDGE,
    ("overlong", "rule"): _NO_JUDGE,
    ("provider_error", "rule"): _NO_SERVER,
    ("cancelled", "rule"): _RAISES,
    ("judge_truncated", "remote"): _NO_JUDGE,
    ("judge_refused", "remote"): _NO_JUDGE,
    (
        "overlong",
        "remote",
    ): (
        "the wires have no word for it; a server that finds a text too long answers with an error:"
        " provider_error"
    ),
    ("unparseable", "remote"): "an answer without a number is the server's failure: provider_error",
    (
        "worker_lost",
        "remote",
    ): (
        "the process behind the address is not ours; its death is a refused connection:"
        " provider_error"
    ),
    ("user_error", "remote"): "no function of the user's runs here",
    ("cancelled", "remote"): _RAISES,
    ("unparseable", "code"): "a response without code is wrong, which is a score of 0",
    ("judge_truncated", "code"): _NO_JUDGE,
    ("judge_refused", "code"): _NO_JUDGE,
    ("overlong", "code"): _NO_JUDGE,
    ("cancelled", "code"): _RAISES,
} | {
    (status, "environment"): _PLAYED
    for status in STATUSES
    if status not in ("ok", "skipped", "user_error")
}


def played(prompt: Prompt, **rewards: float) -> Conversation:
    """The prompt's conversation, in an environment that gave these rewards."""
    reply = {"role": "assistant", "content": "a"}
    return Conversation(
        messages=(*prompt.messages, reply), first=len(prompt.messages), rewards=rewards
    )


def specs_of(kind: str, injection: Injection, folder: Path, *, url: str) -> list[RewardSpec]:
    """The reward "mine" of that kind, after the rules it needs."""
    gates = ("gate",) if injection.gate else ()
    before = [rule(folder, "gate", "return float(solution_str != 'bad')")] if injection.gate else []
    if kind == "ensemble":
        members = [
            _model("generative", injection, folder, name="judge"),
            rule(folder, "length", "return len(solution_str)"),
        ]
        members = [
            dataclasses.replace(member, part_of="mine", weight=0.0, gates=gates)
            for member in members
        ]
        ensemble = RewardSpec(
            name="mine",
            kind="ensemble",
            weight=1.0,
            options=Ensemble.Options(of=["judge", "length"]),
        )
        return [*before, ensemble, *members]
    return [*before, dataclasses.replace(_alone(kind, injection, folder, url=url), gates=gates)]


def answer(injection: Injection) -> Any:
    """What a reward server answers: the length, but the injected reply to the row that fails. One
    that runs code reports that the test passes."""

    def reply(seen: Seen) -> Reply:
        if injection.reply is not None and _text(seen) == BAD:
            return injection.reply
        if "code" not in seen.body:
            return Reply(float(len(seen.body["response"])))
        verdict = [True, ""]
        if injection.reported is not None and _text(seen) == BAD:
            verdict = injection.reported
        return ran_tests(seen, [verdict])

    return reply


def ran_tests(seen: Seen, verdicts: list[Any]) -> Reply:
    """What a SandboxFusion service answers when the tester in it has these verdicts."""
    job = json.loads(seen.body["stdin"])
    text = json.dumps(verdicts)
    code = hmac.new(job["secret"].encode(), text.encode(), "sha256").hexdigest()
    ran = {
        "status": "Finished",
        "return_code": 0,
        "execution_time": 0.1,
        "stdout": f"{job['ready']}\n\n{code} {text}\n",
        "stderr": "",
    }
    return Reply(
        {"status": "Success", "message": "", "compile_result": None, "run_result": ran, "files": {}}
    )


def _text(seen: Seen) -> str:
    """The response that a server is asked about."""
    if "code" in seen.body:
        return json.loads(seen.body["stdin"])["candidate"][-1]
    return seen.body["response"]


def _alone(kind: str, injection: Injection, folder: Path, *, url: str) -> RewardSpec:
    if kind == "rule":
        return rule(folder, "mine", injection.body, timeout_s=injection.timeout_s)
    if kind == "remote":
        options = Options(wire="slime", url=url, timeout_s=injection.timeout_s, max_tries=1)
        return RewardSpec(
            name="mine",
            kind="remote",
            weight=1.0,
            options=options,
            remote=http_spec(options, "reward.specs.mine"),
        )
    if kind == "code":
        made = CodeReward.Options(
            where="sandbox_fusion",
            url=url,
            needs_block=False,
            timeout_s=injection.timeout_s,
            max_tries=1,
        )
        server = CodeReward.server_of(made, "reward.specs.mine")
        return RewardSpec(name="mine", kind="code", weight=1.0, options=made, remote=server)
    return _model(kind, injection, folder)


def _model(kind: str, injection: Injection, folder: Path, *, name: str = "mine") -> RewardSpec:
    options = REWARD_KINDS[kind].Options()
    if not REWARD_KINDS[kind].roles:
        return RewardSpec(name=name, kind=kind, weight=1.0, options=options)
    runner: Any = RUNNERS.get(kind, "generate")
    engine = dataclasses.replace(ENGINE, runner=runner, kwargs=_script(kind, injection))
    engines: dict[str, EngineSpec] = {"main": engine}
    made: dict[str, Any] = {"options": options}
    if runner == "generate" and kind != "teacher":
        made["sampling"] = Sampling(max_tokens=8, temperature=0.0)
    if kind == "critique":
        engines["scorer"] = dataclasses.replace(ENGINE, path="/models/scalar", runner="pooling")
        made["options"] = CritiqueReward.Options(scorer={"path": "/models/scalar"})
    if kind == "generative":
        made["options"] = GenerativeReward.Options(rubric="Is it good?")
    if injection.meta:
        engines["meta"] = dataclasses.replace(
            ENGINE, path="/models/meta", runner="pooling", kwargs=injection.script
        )
        engines["main"] = dataclasses.replace(ENGINE, kwargs={})
        made["sampling"] = Sampling(max_tokens=8, temperature=1.0, n=3)
        meta = {"path": "/models/meta", "keep": 2}
        made["options"] = GroupReward.Options(meta=meta)
        if kind == "generative":
            made["options"] = GenerativeReward.Options(rubric="Is it good?", meta=meta)
    if kind == "rubric":
        made["options"] = RubricReward.Options(
            criteria=[{"text": "It is good.", "choices": ["N", "Y"]}],
            combine="holistic" if injection.holistic else "weighted_mean",
        )
        if injection.criteria_from:
            made["options"] = RubricReward.Options(criteria_from=injection.criteria_from)
    if injection.verdict:
        made["dropin"] = _dropin(kind, injection.verdict, folder)
    return RewardSpec(name=name, kind=kind, weight=1.0, engines=engines, **made)


def _script(kind: str, injection: Injection) -> dict[str, Any]:
    """What a judge of pairs says of the other rows is a pair's verdict."""
    told = dict(injection.script)
    return told | {"text": "A"} if kind == "group" and "text" in told else told


_READS = {
    "generative": 'f"{p} {r}"', "critique": 'f"{p} {r}"', "group": 'f"{p} {r[0]} {r[1]}"', "bradley_terry": 'f"{p} {r}"', "process": "[r]",
    "similarity": "r",
}  # fmt: skip


def _dropin(kind: str, verdict: str, folder: Path) -> Any:
    """It gives `verdict` for the row, which it knows by its ground truth, and 1.0 for the
    others."""
    path = folder / "dropin.py"
    path.write_text(
        "def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):\n"
        f"    return [{_READS[kind]} for p, r in zip(text_prompts, text_responses, strict=True)]\n"
        "def rm_postprocess(results, ground_truths):\n"
        f"    return [{verdict} if 'bad' in truth else 1.0 for truth in ground_truths]\n",
        encoding="utf-8",
    )
    return load_dropin(path, "mine")
