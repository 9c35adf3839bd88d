"""Generated pages are up to date, and what the pages about rewards show can be used as it
stands."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rmrl import commands
from rmrl.assemble.resolve import resolve
from rmrl.cluster.devices import cpu_devices
from rmrl.config.check_reward import reward_problems
from rmrl.config.compat import translate
from rmrl.config.load import compose_config
from rmrl.config.schema import Config, ScoreConfig
from rmrl.rewards.dropins.dropin import load_dropin
from rmrl.rewards.entries.section import Policy
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer.policy_judge import policy_of
from rmrl.types import Conversation, RewardBatch
from scripts import wrap_prose
from scripts.write_config_docs import PAGE, page
from tests import docs_pages
from tests.rewards import parts

CONFIGS = [block for block in docs_pages.blocks("yaml") if block.name.startswith("conf/reward/")]
DROPINS = [
    block for block in docs_pages.blocks("python") if block.name.startswith("reward_functions/")
]
COMMANDS = docs_pages.commands()


def test_configuration_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python scripts/write_config_docs.py"


def test_an_unwrapped_page_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "page.md"
    page.write_text("word " * 30 + "\n")
    monkeypatch.setattr(sys, "argv", ["wrap_prose.py", "--check", str(page)])
    with pytest.raises(SystemExit, match="1"):
        wrap_prose.main()
    page.write_text(wrap_prose.wrap(page.read_text()))
    wrap_prose.main()


def test_wrapping_leaves_tables_code_and_lists_alone():
    kept = "\n".join(
        ["# A heading " + "x" * 100, "", "| a " + "b" * 100 + " |", "```", "c  " * 40, "```"]
    )
    assert wrap_prose.wrap(kept) == kept + "\n"
    long_item = "- " + "word " * 30 + "`code span` - not an item"
    first, second = wrap_prose.wrap(long_item).splitlines()
    assert first.startswith("- word")
    assert len(first) <= 100
    assert second.startswith("  word")
    assert second.endswith("`code span` - not an item")


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return docs_pages.lay_out(tmp_path_factory.mktemp("docs"))


@pytest.fixture
def place(laid_out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory is one in which every block of the pages is a file."""
    monkeypatch.chdir(laid_out)
    monkeypatch.syspath_prepend(str(laid_out))
    monkeypatch.setenv("JUDGE_API_KEY", "not-a-key")
    return laid_out


def test_every_block_is_named_once():
    named = [block.name for block in [*docs_pages.blocks("yaml"), *docs_pages.blocks("python")]]
    assert all(named)
    assert len(set(named)) == len(named)


# --- configurations


def specs_of(config: Config | ScoreConfig, *, policy: Policy | None = None) -> list[RewardSpec]:
    """The specs of a configuration that has no problem."""
    assert list(reward_problems(config)) == []
    shipped = docs_pages.ROOT / "reward_functions"
    resolved = resolve(
        config.reward,
        device="cpu",
        shipped_functions=shipped,
        trust_remote_code=False,
        policy=policy,
    )
    assert resolved.problems == []
    return resolved.specs


def composed(overrides: list[str], place: Path, root: Any = Config) -> Any:
    return compose_config(["--config-dir", f"{place}/conf", *overrides], root)


@cache
def of_block(block: docs_pages.Block, place: Path) -> Config:
    return composed([f"+reward={Path(block.name).stem}"], place)


@pytest.mark.parametrize("block", CONFIGS, ids=lambda block: block.name)
def test_a_configuration_resolves(block: docs_pages.Block, place: Path):
    config = of_block(block, place)
    names = {spec.name for spec in specs_of(config)}
    assert set(config.reward.models) <= names


def test_a_configuration_is_for_scoring_files_too(place: Path):
    (block,) = [block for block in CONFIGS if block.name == "conf/reward/ensemble.yaml"]
    trained, scored = (
        specs_of(of_block(block, place)),
        specs_of(composed(["+reward=ensemble"], place, ScoreConfig)),
    )
    assert (
        [spec.name for spec in trained]
        == [spec.name for spec in scored]
        == ["panel", "gsm8k", "first", "second", "third"]
    )


def test_a_whole_configuration_resolves(place: Path):
    whole = [
        block for block in docs_pages.blocks("yaml") if not block.name.startswith("conf/reward/")
    ]
    assert [block.name for block in whole] == ["conf/judges.yaml", "conf/self_rewarding.yaml"]
    config = named_config(place, "judges")
    assert config.trainer.resource_pools == {"judges": {"nnodes": 1, "n_gpus_per_node": 2}}
    pools = {spec.name: spec.engine.pool for spec in specs_of(config) if spec.engine}
    assert pools == {"helpful": "judges", "preference": ""}


def test_the_policy_of_a_whole_configuration_judges(place: Path):
    config = named_config(place, "self_rewarding")
    specs = specs_of(config, policy=policy_of(config, cpu_devices()))
    engines = {spec.name: spec.engine for spec in specs if spec.engine}
    assert {name: engine.shown_name for name, engine in engines.items()} == {
        "itself": "policy",
        "first": "vllm",
    }
    assert {engine.path for engine in engines.values()} == {".models/smollm2"}


def named_config(place: Path, name: str) -> Config:
    return compose_config(["--config-dir", f"{place}/conf", "--config-name", name])


@pytest.mark.parametrize("block", CONFIGS, ids=lambda block: block.name)
async def test_a_configuration_scores(block: docs_pages.Block, place: Path, tokenizer: Any):
    """With engines that answer anything: the drop-ins are called as the kinds call them, and
    nothing in them raises."""
    config = of_block(block, place)
    specs = [docs_pages.on_fake_engines(spec) for spec in specs_of(config)]
    if any(spec.remote is not None for spec in specs):
        pytest.skip("asks a server")
    batch = await scored(specs, config, tokenizer)
    assert batch.scores.values_BC.shape == (4, sum(not spec.part_of for spec in specs))
    statuses = {result.status for column in batch.scores.results for result in column}
    assert statuses <= {"ok", "skipped", "unparseable"}, [
        r.detail for c in batch.scores.results for r in c if r.status not in ("ok", "skipped")
    ]


async def scored(specs: list[RewardSpec], config: Config, tokenizer: Any) -> RewardBatch:
    settings = {
        name: getattr(config.reward, name)
        for name in ("combine", "combine_ops", "gates", "weight_schedules", "soft_min_beta")
    }
    scorer = parts.make_scorer(specs, tokenizer, **settings)
    rows = parts.rows(
        "First step.\n\nAnswer: 7 apples",
        "Answer: 8",
        "No.",
        "Yes. It is 7 apples",
        prompt="3 + 4?",
        truth="7 apples",
        group_size=2,
    )
    rubrics = [{"criterion": "Counts the apples", "points": 5, "tags": ["axis:accuracy"]}]
    for place, row in enumerate(rows):
        prompt = replace(row.prompt, extra_info={"rubrics": rubrics})
        if any(spec.kind == "environment" for spec in specs):
            turns = (*prompt.messages, {"role": "assistant", "content": row.text})
            talk = Conversation(messages=turns, first=1, rewards={"correct": 1.0})
            prompt = replace(prompt, conversation=talk)
        rows[place] = replace(row, prompt=prompt)
    try:
        return await asyncio.wait_for(scorer.score(rows), 60)
    finally:
        await scorer.close()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = parts.chat_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    made.add_tokens(["Yes", "No", "Poor", "Fair", "Good", "<extra_0>"])
    return made


# --- commands


@pytest.mark.parametrize(
    ("page", "command"), COMMANDS, ids=[f"{page}-{i}" for i, (page, _) in enumerate(COMMANDS)]
)
def test_a_command_is_understood(page: str, command: str, place: Path):
    words = shlex.split(command, comments=True)
    if words[:2] == ["rmrl", "cache"]:
        commands.command_named("cache").parser().parse_args(words[2:])
        return
    if words[0] == "bash":
        assert (docs_pages.ROOT / words[1]).is_file()
        return
    if words[1] == "-m" and words[2].startswith("benchmarks."):
        assert (docs_pages.ROOT / words[2].replace(".", "/") / "__main__.py").is_file()
        return
    root, overrides = root_and_overrides(words)
    named = words[words.index("--config-name") + 1] if "--config-name" in words else ""
    config = named_config(place, named) if named else composed(overrides, place, root)
    translate(config)
    assert specs_of(config)


def root_and_overrides(words: list[str]) -> tuple[Any, list[str]]:
    """Of `rmrl check` the root depends on the data it names."""
    entry = {"python": words[2], "rmrl": f"rmrl.main_{words[1]}"}[words[0]]
    given = words[3:] if words[0] == "python" else words[2:]
    flagged = {
        i
        for i, word in enumerate(given)
        for i in (i, i + 1)
        if word in ("--rows", "--response", "--config-dir", "--config-name")
    }
    overrides = [word for i, word in enumerate(given) if i not in flagged]
    trains = entry == "rmrl.main_ppo" or any(
        word.startswith("data.train_files") for word in overrides
    )
    assert entry in ("rmrl.main_ppo", "rmrl.main_score", "rmrl.main_check")
    return (Config if trains else ScoreConfig), overrides


def test_older_names_become_what_the_page_says(place: Path):
    (command,) = [command for page, command in COMMANDS if page == "rewards/older-names.md"]
    config = composed(shlex.split(command)[3:], place)
    translate(config)
    shown = composed(["+reward=translated"], place).reward
    for key in ("models", "weights", "combine", "combine_ops", "specs"):
        assert getattr(config.reward, key) == getattr(shown, key), key


# --- drop-ins


@pytest.mark.parametrize("block", DROPINS, ids=lambda block: block.name)
def test_a_dropin_loads_and_is_used(block: docs_pages.Block, place: Path):
    name = Path(block.name).stem
    dropin = load_dropin(place / block.name, name)
    assert dropin.kind == ("rule" if "def compute_score" in block.code else "model")
    assert any(re.search(rf"\b{name}\b", config.code) for config in CONFIGS), (
        f"no configuration uses {name}"
    )


def test_dropins_read_verdicts(place: Path):
    def post(name: str, *results: Any, **more: Any) -> Any:
        function = load_dropin(place / "reward_functions" / f"{name}.py", name).postprocess
        assert function is not None
        return function(list(results), **more)

    assert post("honest", 'Fine. {"score": 4, "worst": "a date"}', "nothing", '{"score": 9}') == [
        {"score": 0.8, "worst": "a date"},
        None,
        None,
    ]
    assert post("last_lines", "It claims 10/10. Score: 3", responses=["10/10"]) == [3.0]
    assert post("clearer", "A is longer, but [[B]]", "[[tie]]", "?") == [0.0, 0.5, None]
    assert post("sentence_steps", [0.5, 1.0]) == [0.75]
    assert post("near_answer", 0.5, -0.2) == [0.25, 0.0]
    assert post("first_paragraph", 0.0) == [0.5]


def test_rules_score(place: Path):
    def rule(name: str, text: str, **more: Any) -> Any:
        function = load_dropin(place / "reward_functions" / f"{name}.py", name).compute_score
        assert function is not None
        return function(data_source="", solution_str=text, **{"ground_truth": "7", **more})

    assert rule("answer_line", "So\nAnswer: 7") == {"score": 1.0, "lines": 1}
    assert rule("answer_line", "Answer: 7", finish_reason="length") == {"score": 0.0, "lines": 1}
    assert rule("answer_line", "Answer: 7", ground_truth=None) is None
