"""Every key and every training command in the pages, and every tracker, estimator and loss that
they show, is what the code takes."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from rmrl.config.compat.keys_of_verl import TABLE, fate_of
from rmrl.config.load import compose_config
from rmrl.config.schema import Config, RewardTrainingConfig, ScoreConfig
from rmrl.config.typed import unknown_key
from tests import docs_pages

ROOT = docs_pages.ROOT
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/*.md")),
]
OLDER_NAMES = "older-names.md"
"""This page is about keys that are translated."""
OF_OTHERS = (OLDER_NAMES, "keys-of-verl.md")
"""Pages whose keys are those of other trainers."""
SHORT = {
    "actor.": "actor_rollout_ref.",
    "rollout.": "actor_rollout_ref.",
    "val_kwargs.": "actor_rollout_ref.rollout.",
    "fsdp_config.": "actor_rollout_ref.actor.",
    "megatron.": "actor_rollout_ref.actor.",
    "policy_loss.": "actor_rollout_ref.actor.",
    "filter_groups.": "algorithm.",
    "pf_ppo.": "algorithm.",
    "kl_ctrl.": "algorithm.",
}
"""How pages shorten keys where the context says the rest."""
_SECTIONS = (
    "actor_rollout_ref.",
    "algorithm.",
    "critic.",
    "data.",
    "reward.",
    "trainer.",
    "ray_kwargs.",
    *SHORT,
)
_KEY = re.compile(
    rf"(?<![\w./\-{{])\+?((?:{'|'.join(map(re.escape, _SECTIONS))})[a-z_.]*[a-z_])(?=[\s=`,;:){{<*\]|]|\.\W|\.[<{{*]|$)"
)
_FILE = re.compile(r"\.(py|json|jsonl|yaml|md|sh|parquet)$")


def code(page: Path) -> str:
    """Fenced blocks and spans of a page, where keys stand."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:bash|yaml)?\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", rest)])


def keys(text: str) -> set[str]:
    """Dotted keys, short ones written out."""
    found = {key for key in _KEY.findall(text) if not _FILE.search(key)}
    return {
        next((longer for short, longer in SHORT.items() if key.startswith(short)), "") + key
        for key in found
    }


def wrong(key: str) -> str | None:
    """A sentence for a key that neither training, scoring nor reward training has, and that is not refused with a
    sentence either."""
    if fate_of(key, TABLE) is not None:
        return None
    said = [unknown_key(root, key) for root in (Config, ScoreConfig, RewardTrainingConfig)]
    return None if None in said else said[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_key_is_one(page: Path):
    if page.name in OF_OTHERS:
        pytest.skip("its keys are those of another trainer")
    assert [said for key in sorted(keys(code(page))) if (said := wrong(key)) is not None] == []


def test_a_wrong_key_would_be_found():
    text = (
        "`algorithm.lamda=1` `trainer.resource_pools.<name>` `rollout.pool` `trainer.json`"
        " `critic.strategie` `critic.*`"
    )
    assert keys(text) == {
        "algorithm.lamda",
        "trainer.resource_pools",
        "actor_rollout_ref.rollout.pool",
        "critic.strategie",
    }
    assert [key for key in sorted(keys(text)) if wrong(key)] == [
        "algorithm.lamda",
        "critic.strategie",
    ]


def commands() -> list[tuple[str, list[str]]]:
    """(page, overrides) of each training command: what stands behind `rmrl.main_ppo`, and the
    settings given to an example's script.

    Those of the pages about rewards are resolved in tests/test_docs.py.
    """
    found = []
    for page in [page for page in PAGES if page not in docs_pages.PAGES]:
        joined = "\n".join(
            re.findall(
                r"^```bash\n(.*?)^```",
                page.read_text(encoding="utf-8"),
                flags=re.DOTALL | re.MULTILINE,
            )
        )
        for line in joined.replace("\\\n", " ").splitlines():
            match = re.search(
                r"(?:-m rmrl\.main_ppo|rmrl train|\bbash examples/\w+/run\.sh)\s(.*)", line
            )
            if match:
                words = [
                    word
                    for word in shlex.split(match[1], comments=True)
                    if re.match(r"\+{0,2}[a-z_.]+=", word)
                ]
                found.append((str(page.relative_to(ROOT)), words))
    return [(page, words) for page, words in found if words]


COMMANDS = commands()


def test_there_are_commands_on_every_page_about_training():
    assert {"README.md", "docs/training.md", "docs/algorithms.md", "docs/operations.md"} <= {
        page for page, _ in COMMANDS
    }


@pytest.mark.parametrize(
    ("page", "words"),
    COMMANDS,
    ids=[f"{page}-{number}" for number, (page, _) in enumerate(COMMANDS)],
)
def test_a_training_command_composes(page: str, words: list[str]):
    assert isinstance(
        compose_config(
            [
                re.sub(r"\$\{?(\w+)\}?", "1", word)
                for word in words
                if word != "reward=rm/reward.yaml"  # what `rmrl train-rm` writes
            ]
        ),
        Config,
    )


def test_settings_worth_changing_compose():
    """`section.key=value` in the text of a page, as examples suggest them."""
    suggested = {
        f"{key}={value}"
        for page in PAGES
        if page.name not in OF_OTHERS
        for key, value in re.findall(
            r"`((?:actor_rollout_ref|algorithm|critic|data|trainer)\.[a-z_.]+)=([\w./\[\],-]+)`",
            code_spans(page),
        )
    }
    assert len(suggested) > 20
    for setting in sorted(suggested):
        key = setting.partition("=")[0]
        row = fate_of(key, TABLE)
        if row is None or row.fate != "refused":
            # Some keys of section data are those of scoring or of reward training alone.
            roots = (Config, ScoreConfig, RewardTrainingConfig)
            compose_config([setting], next(r for r in roots if unknown_key(r, key) is None))


def code_spans(page: Path) -> str:
    return " ".join(
        f"`{span}`" for span in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))
    )


def test_the_estimator_loss_and_tracker_shown_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from tests.trainer.fake_run import fake_run, records, train_and_close  # imports torch

    monkeypatch.syspath_prepend(str(docs_pages.lay_out(tmp_path / "docs")))
    run = fake_run(
        tmp_path,
        total_steps=2,
        algorithm__adv_estimator="mylab.advantages:median_baseline",
        actor_rollout_ref__actor__policy_loss__loss_mode="mylab.losses:capped",
        actor_rollout_ref__actor__ppo_mini_batch_size=1,
        trainer__logger=["jsonl", "mylab.trackers:RewardTable"],
    )
    asyncio.run(train_and_close(run))
    lines = records(run.out_dir / "metrics.jsonl")
    table = (run.out_dir / "rewards.csv").read_text(encoding="utf-8").splitlines()
    assert table == [f"{line['step']},{line['reward/mean']}" for line in lines]
    assert all(line["policy/grad_norm"] > 0 and 0 <= line["policy/capped"] <= 1 for line in lines)
