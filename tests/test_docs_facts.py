"""Tables, lists and examples by hand in the pages about rewards say what the code does."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmrl.config.schema import RewardConfig, RewardMonitorConfig
from rmrl.inference.reward_engines import ENGINES
from rmrl.rewards.combine import COMBINERS, CombineInputs, combine, weights_matrix
from rmrl.rewards.combine.schedules import schedules_of
from rmrl.rewards.dropins.dropin import KNOWN_ARGUMENTS
from rmrl.rewards.entries.section import SHARED_KEYS
from rmrl.rewards.judging import verdicts
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.ensemble.reward import ensemble_results
from rmrl.rewards.remote import WIRES
from rmrl.rewards.remote.spec import HTTPSpec, RewardRequest
from rmrl.rewards.response_facts import Rows
from rmrl.rewards.session.missing import CAUSES
from rmrl.rewards.specs.spec import OnMissing, RewardSpec
from rmrl.rewards.transforms import TRANSFORMS, Chain, chain_of
from rmrl.types import STATUSES, ScoreItem, ScoreResult, Scores
from tests import docs_pages
from tests.rewards import parts
from tests.rewards.remote.server import Reply, serving


def read(page: str) -> str:
    return (docs_pages.DOCS / page).read_text(encoding="utf-8")


# --- nothing is left out


@pytest.mark.parametrize("kind", list(REWARD_KINDS))
def test_every_entry_of_a_kind_is_explained(kind: str):
    text = read(f"rewards/kinds/{kind}.md")
    entries = dataclasses.fields(REWARD_KINDS[kind].Options)
    assert [f.name for f in entries if not re.search(rf"\b{f.name}\b", text)] == []


@pytest.mark.parametrize("kind", list(TRANSFORMS))
def test_every_entry_of_a_transform_stands_in_the_table(kind: str):
    (row,) = [
        row
        for row in docs_pages.table_rows(
            docs_pages.section("rewards/combining.md", "## Transforms")
        )
        if row[0] == f"`{kind}`"
    ]
    for field in dataclasses.fields(TRANSFORMS[kind]):
        default = "null" if field.default is None else field.default
        shown = (
            f"`{field.name}`"
            if field.default is dataclasses.MISSING
            else f"`{field.name}` ({default})"
        )
        assert shown in row[-1]


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("rewards.md", (*STATUSES, *SHARED_KEYS, *REWARD_KINDS, *KNOWN_ARGUMENTS)),
        (
            "rewards/combining.md",
            (*COMBINERS, *CAUSES, *(status for statuses in CAUSES.values() for status in statuses)),
        ),
        ("rewards/kinds/remote.md", tuple(WIRES)),
        ("rewards/kinds.md", tuple(REWARD_KINDS)),
        ("rewards/engines.md", tuple(ENGINES)),
        (
            "rewards/watching.md",
            tuple(f"reward.monitor.{f.name}" for f in dataclasses.fields(RewardMonitorConfig)),
        ),
        ("rewards/untrusted.md", ("last_number", "last_tagged", "last_json_field", "last_choice")),
    ],
)
def test_every_name_is_on_its_page(page: str, names: tuple[str, ...]):
    text = read(page)
    assert [name for name in names if f"`{name}" not in text] == []


def test_thresholds_of_hints_are_the_defaults():
    text = docs_pages.section("rewards/watching.md", "## Hints")
    settings = RewardMonitorConfig()
    for name in ("divergence", "length", "unparseable", "repeated", "window"):
        assert f"`reward.monitor.{name}` ({getattr(settings, name)})" in text


@pytest.mark.parametrize("page", docs_pages.PAGES, ids=lambda page: page.name)
def test_anchors_lead_to_headings(page: Path):
    for target, anchor in re.findall(
        r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text(encoding="utf-8")
    ):
        text = ((page.parent / target) if target else page).read_text(encoding="utf-8")
        anchors = [
            re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        ]
        assert anchor in anchors, f"{page.name} links to {target}#{anchor}"


# --- by hand


def test_combiners_by_hand():
    seen = set()
    for names, _, example in docs_pages.table_rows(
        docs_pages.section("rewards/combining.md", "## Combiners")
    )[1:]:
        found = re.search(
            r"`s=(\[.*?\]) w=(\[.*?\])(?: ops=\[(.*?)\])?(?: beta=(\d+))?`.*gives (.+)", example
        )
        if found is None:
            continue
        settings = RewardConfig(soft_min_beta=float(found[4] or 1))
        inputs = one_row(
            json.loads(found[1]),
            json.loads(found[2]),
            tuple((found[3] or "add, add").split(", ")),
            "gate closed" in example,
        )
        for name, expected in zip(
            re.findall(r"`(\w+)`", names), re.findall(r"[\d.]+", found[5]), strict=True
        ):
            assert COMBINERS[name](inputs, settings=settings)[0] == pytest.approx(
                float(expected), abs=5e-4
            ), name
            seen.add(name)
    assert seen == set(COMBINERS) - {"lexicographic"}


def one_row(
    values: list[float], weights: list[float], ops: tuple[str, ...], closed: bool
) -> CombineInputs:
    present = np.array([[True, not closed]])
    return CombineInputs(
        values_NC=np.array([values]) * present, weights_NC=np.array([weights]) * present, present_NC=present, closed_NC=~present,
        watched_NC=np.zeros_like(present), ops=ops, group_ids_N=np.zeros(1, dtype=np.int64),
    )  # fmt: skip


def test_lexicographic_by_hand():
    values = np.array([[1, 0.2], [1, 0.9], [0, 1], [1, 0.2]])
    everywhere = np.ones((4, 2), dtype=bool)
    inputs = CombineInputs(
        values_NC=values,
        weights_NC=np.ones((4, 2)),
        present_NC=everywhere,
        closed_NC=~everywhere,
        watched_NC=~everywhere,
        ops=("add", "add"),
        group_ids_N=np.zeros(4),
    )
    assert COMBINERS["lexicographic"](inputs, settings=RewardConfig()).tolist() == [0.5, 1, 0, 0.5]
    assert "gives 0.5, 1, 0, 0.5" in read("rewards/combining.md")


@pytest.mark.parametrize(
    ("on_missing", "expected"), [("mask", None), ("renormalize", 0.32), ({"impute": 1}, 0.5)]
)
def test_missing_verdicts_by_hand(on_missing: Any, expected: float | None):
    specs = [
        RewardSpec(
            name="a", kind="rule", weight=0.3, on_missing=OnMissing.parse(on_missing, where="x")
        ),
        RewardSpec(name="b", kind="rule", weight=0.5),
    ]
    results = ((ScoreResult(value=None, status="timeout"),), (ScoreResult(value=0.4),))
    rows = Rows.of([ScoreItem(prompt_id="0", messages=[], response="", rm_prompt="")])
    weights_BC = weights_matrix(specs, rows, step=0, schedules={})
    scores = Scores(names=("a", "b"), results=results)
    batch = combine(
        scores,
        specs,
        rows,
        settings=RewardConfig(),
        weights_BC=weights_BC,
        transforms=[Chain(), Chain()],
    )
    assert bool(batch.keep_B[0]) == (expected is not None)
    if expected is not None:
        assert batch.rewards_B[0] == pytest.approx(expected)


def test_schedule_and_ensemble_by_hand():
    schedule = schedules_of({"helpful": [[0, 0.0], [100, 0.0], [300, 0.5]]}, ["helpful"])["helpful"]
    assert schedule.at(200) == 0.25
    options = REWARD_KINDS["ensemble"].Options(of=["a", "b", "c"], how="lower_bound", k=1.0)
    members = [[ScoreResult(value=float(value))] for value in (1, 2, 3)]
    (result,) = ensemble_results(members, np.array([[1.0], [2.0], [3.0]]), options, "panel")
    assert result.value == pytest.approx(1.0)


def test_verdicts_by_hand():
    rows = [
        row
        for row in docs_pages.table_rows(
            docs_pages.section("rewards/untrusted.md", "## Reading a verdict")
        )
        if " is `" in row[1]
    ]
    assert len(rows) == 4
    for _, example in rows:
        call, expected = re.fullmatch(r"`(.+)` is `(.+)`", example).groups()  # type: ignore[union-attr]
        tree = ast.parse(call, mode="eval").body
        assert isinstance(tree, ast.Call)
        assert isinstance(tree.func, ast.Name)
        assert getattr(verdicts, tree.func.id)(
            *map(ast.literal_eval, tree.args)
        ) == ast.literal_eval(expected)


# --- parts of one's own


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return docs_pages.lay_out(tmp_path_factory.mktemp("docs"))


@pytest.fixture
def mylab(laid_out: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the page about extending."""
    monkeypatch.syspath_prepend(str(laid_out))
    return lambda name: importlib.import_module(f"mylab.{name}")


async def test_the_kind_shown_scores(mylab: Any):
    kind = mylab("kinds").Overlap
    assert kind.problems(kind.Options(least=0), "reward.specs.words") == [
        "reward.specs.words.least=0: give at least 1"
    ]
    spec = RewardSpec(
        name="words", kind="mylab.kinds:Overlap", weight=1.0, options=kind.Options(least=2)
    )
    results = await kind.from_spec(spec, None).score(
        parts.items("seven green pears", "two", truth="seven apples")
    )
    assert [result.value for result in results] == [0.5, 0.0]
    (short,) = await kind.from_spec(spec, None).score(parts.items("seven", truth="seven"))
    assert (short.value, short.status) == (None, "user_error")


def test_the_combiner_shown_is_a_harmonic_mean(mylab: Any):
    harmonic = mylab("combiners").harmonic
    # (1 + 1) / (1 / 1 + 1 / 0.5) = 2 / 3
    assert harmonic(
        one_row([1, 0.5], [1, 1], ("add", "add"), False), settings=RewardConfig()
    ) == pytest.approx([2 / 3])
    assert harmonic(one_row([1, 0], [1, 1], ("add", "add"), False), settings=RewardConfig()) == [0]
    assert harmonic(one_row([0.25, 0], [2, 1], ("add", "add"), True), settings=RewardConfig()) == [
        0.25
    ]


def test_the_transform_shown_takes_powers(mylab: Any):
    chain = chain_of([{"kind": "mylab.transforms:Power", "exponent": 0.5}], "here")
    assert mylab("transforms").Power(exponent=-1).problems() == [
        "exponent=-1: give a number greater than 0"
    ]
    rows = Rows.of(parts.items("a", "b"))
    assert chain.apply(np.array([4.0, -9.0]), rows, np.array([True, True])).tolist() == [2.0, -3.0]


def test_the_engine_shown_answers(mylab: Any):
    engine = mylab("engines").Shouting(parts.engine(max_model_len=3))
    request = parts.GenerateRequest(
        token_ids=(1, 2), sampling=parts.Sampling(max_tokens=1, n=2), text="say yes"
    )
    too_long = dataclasses.replace(request, token_ids=(1, 2, 3))
    fine, failed = engine.generate([request, too_long])
    assert [output.text for output in fine] == ["YES", "YES"]
    assert [output.failure for output in failed] == ["overlong", "overlong"]


async def test_the_wire_shown_asks_a_server(mylab: Any):
    wires = mylab("wires")
    with serving(lambda seen: Reply({"logit": len(seen.body["text_pair"][1])})) as server:
        wire = wires.PairWire(HTTPSpec(url=server.url, wire="pair"))
        outputs = await wire.submit("reward", [RewardRequest("q", "four"), RewardRequest("q", "a")])
        await wire.aclose()
    assert [output.value for output in outputs] == [4, 1]


def test_messages_of_the_troubleshooting_page_are_those_of_the_code():
    """Each message's pieces, cut at its dots, stand in one string of the package."""
    package = docs_pages.ROOT / "rmrl"
    strings: list[str] = []
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                strings.append(joined_text(node))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.append(node.value)
    page = read("troubleshooting.md").partition("## A run that is fine")[0]
    messages = [row[0].strip("`") for row in docs_pages.table_rows(page) if row[0].startswith("`")]
    assert len(messages) > 15
    for message in messages:
        pieces = [piece for piece in message.split("...") if piece.strip()]
        assert any(all(piece in text for piece in pieces) for text in strings), message


def joined_text(node: ast.JoinedStr) -> str:
    """The constant parts of an f-string, with dots in the place of its values."""
    return "...".join(
        part.value for part in node.values if isinstance(part, ast.Constant) and part.value
    )
