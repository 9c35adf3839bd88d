"""The reward layer's inner interface.

The evaluation, the report, the service and the adapters import rewards, engines and scored files
from here, and nothing that lies deeper. Your own program can do the same where it needs more than
`rmrl.Rewards`. A module is loaded when you first import a name from it.

    from rmrl.api import open_scorer

    async with open_scorer(checked) as scorer:
        rewards = await scorer.score(rows)

docs/python.md lists the names by purpose.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmrl.assemble.resolve import resolve as resolve
    from rmrl.commands.command import Command as Command
    from rmrl.inference.engine_facts import engine_facts as engine_facts
    from rmrl.inference.reward_engine_base import GenerateRequest as GenerateRequest
    from rmrl.inference.reward_engine_base import TextOutput as TextOutput
    from rmrl.offline.check_scoring import CheckedScoring as CheckedScoring
    from rmrl.offline.check_scoring import check_scoring as check_scoring
    from rmrl.offline.identity import identity_of as identity_of
    from rmrl.offline.identity import what_differs as what_differs
    from rmrl.offline.manifest import summary_file as summary_file
    from rmrl.offline.open_scorer import OpenScorer as OpenScorer
    from rmrl.offline.open_scorer import open_scorer as open_scorer
    from rmrl.offline.open_scorer import token_counter as token_counter
    from rmrl.offline.response_rows import response_rows as response_rows
    from rmrl.offline.rewards import AsyncRewards as AsyncRewards
    from rmrl.offline.rewards import Rewards as Rewards
    from rmrl.offline.score import judge_missing as judge_missing
    from rmrl.offline.score import score_files as score_files
    from rmrl.offline.score_columns import score_columns as score_columns
    from rmrl.offline.score_table import ScoreTable as ScoreTable
    from rmrl.offline.scored_responses import Scored as Scored
    from rmrl.offline.scored_responses import responses as responses
    from rmrl.offline.summary import Summary as Summary
    from rmrl.offline.summary import add_to as add_to
    from rmrl.rewards.calibration.audited import report_audits as report_audits
    from rmrl.rewards.calibration.check import maps_of as maps_of
    from rmrl.rewards.calibration.clusters import independent_count as independent_count
    from rmrl.rewards.calibration.corrected import corrected_scores as corrected_scores
    from rmrl.rewards.calibration.digest import reward_digest as reward_digest
    from rmrl.rewards.combine.steps import to_tokens as to_tokens
    from rmrl.rewards.judging.parser import Parser as Parser
    from rmrl.rewards.judging.parser import parser_problem as parser_problem
    from rmrl.rewards.judging.reader import read_choice as read_choice
    from rmrl.rewards.judging.reader import read_number as read_number
    from rmrl.rewards.kinds import REWARD_KINDS as REWARD_KINDS
    from rmrl.rewards.kinds.judge.asked import VerdictTree as VerdictTree
    from rmrl.rewards.kinds.judge.decisions import MOST_CHOICES as MOST_CHOICES
    from rmrl.rewards.kinds.judge.decisions import MOST_LEVELS as MOST_LEVELS
    from rmrl.rewards.kinds.judge.decisions import Decision as Decision
    from rmrl.rewards.kinds.judge.decisions import Option as Option
    from rmrl.rewards.kinds.judge.decisions import Question as Question
    from rmrl.rewards.kinds.judge.decisions import QuestionKind as QuestionKind
    from rmrl.rewards.kinds.judge.decisions import node_requests as node_requests
    from rmrl.rewards.kinds.judge.decisions import read_decision as read_decision
    from rmrl.rewards.kinds.shared.rendering import generate_requests as generate_requests
    from rmrl.rewards.kinds.shared.rendering import tokenize as tokenize
    from rmrl.rewards.kinds.shared.tokenizing import tokenize_chats as tokenize_chats
    from rmrl.rewards.kinds.shared.untrusted import neutraliser as neutraliser
    from rmrl.rewards.residency import EnginePlan as EnginePlan
    from rmrl.rewards.response_facts import Rows as Rows
    from rmrl.rewards.session.items import ResponseRow as ResponseRow
    from rmrl.rewards.session.scorer import Scorer as Scorer
    from rmrl.rewards.session.session import Session as Session
    from rmrl.rewards.session.sharing import Client as Client
    from rmrl.rewards.session.sharing import Owner as Owner
    from rmrl.rewards.specs.spec import RewardSpec as RewardSpec
    from rmrl.rewards.transforms.chain import Chain as Chain
    from rmrl.rewards.transforms.chain import chain_of as chain_of
    from rmrl.rewards.transforms.chain import compared as compared
    from rmrl.rewards.transforms.chain import parse_transforms as parse_transforms
    from rmrl.rewards.transforms.probability_map import Curve as Curve
    from rmrl.rewards.transforms.probability_map import ProbabilityMap as ProbabilityMap
    from rmrl.rewards.transforms.probability_map import Verdicts as Verdicts

_PLACES = {
    # Score from Python
    "rmrl.offline.rewards": ("AsyncRewards", "Rewards"),
    "rmrl.offline.score_table": ("ScoreTable",),
    # A scorer and its sessions
    "rmrl.rewards.session.scorer": ("Scorer",),
    "rmrl.rewards.session.session": ("Session",),
    "rmrl.rewards.session.items": ("ResponseRow",),
    "rmrl.rewards.session.sharing": ("Client", "Owner"),
    "rmrl.rewards.residency": ("EnginePlan",),
    "rmrl.rewards.specs.spec": ("RewardSpec",),
    "rmrl.assemble.resolve": ("resolve",),
    "rmrl.rewards.kinds": ("REWARD_KINDS",),
    "rmrl.rewards.combine.steps": ("to_tokens",),
    "rmrl.rewards.response_facts": ("Rows",),
    # Files of responses, and files of scores
    "rmrl.offline.check_scoring": ("CheckedScoring", "check_scoring"),
    "rmrl.offline.open_scorer": ("OpenScorer", "open_scorer", "token_counter"),
    "rmrl.offline.score": ("judge_missing", "score_files"),
    "rmrl.offline.score_columns": ("score_columns",),
    "rmrl.offline.response_rows": ("response_rows",),
    "rmrl.offline.scored_responses": ("Scored", "responses"),
    "rmrl.offline.manifest": ("summary_file",),
    "rmrl.offline.summary": ("Summary", "add_to"),
    "rmrl.offline.identity": ("identity_of", "what_differs"),
    # Transforms and calibration
    "rmrl.rewards.transforms.chain": ("Chain", "chain_of", "compared", "parse_transforms"),
    "rmrl.rewards.transforms.probability_map": ("Curve", "ProbabilityMap", "Verdicts"),
    "rmrl.rewards.calibration.audited": ("report_audits",),
    "rmrl.rewards.calibration.check": ("maps_of",),
    "rmrl.rewards.calibration.clusters": ("independent_count",),
    "rmrl.rewards.calibration.corrected": ("corrected_scores",),
    "rmrl.rewards.calibration.digest": ("reward_digest",),
    # Verdicts of judges
    "rmrl.rewards.judging.parser": ("Parser", "parser_problem"),
    "rmrl.rewards.judging.reader": ("read_choice", "read_number"),
    "rmrl.rewards.kinds.judge.asked": ("VerdictTree",),
    "rmrl.rewards.kinds.judge.decisions": (
        "MOST_CHOICES",
        "MOST_LEVELS",
        "Decision",
        "Option",
        "Question",
        "QuestionKind",
        "node_requests",
        "read_decision",
    ),
    # Texts to an engine
    "rmrl.rewards.kinds.shared.rendering": ("generate_requests", "tokenize"),
    "rmrl.rewards.kinds.shared.tokenizing": ("tokenize_chats",),
    "rmrl.rewards.kinds.shared.untrusted": ("neutraliser",),
    "rmrl.inference.engine_facts": ("engine_facts",),
    "rmrl.inference.reward_engine_base": ("GenerateRequest", "TextOutput"),
    # Commands
    "rmrl.commands.command": ("Command",),
}
"""Module -> names that it has."""
_MODULES = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'rmrl.api' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)
