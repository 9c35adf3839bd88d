"""Vocabularies of teachers, compared before a run: with real tokenizers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.schema import Config
from rmrl.rewards.kinds.teacher.reward import TeacherReward
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer.check_teachers import teacher_advice, teacher_problems
from tests.engine_models import write_llama
from tests.rewards.parts import engine


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "policy")


def changed(folder: Path, **edits: Any) -> Path:
    """A copy of the policy's folder in which `rename` gives tokens other names, and `drop` leaves
    some out."""
    write_llama(folder)
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    vocab = content["model"]["vocab"]
    for old, new in edits.get("rename", {}).items():
        vocab[new] = vocab.pop(old)
    for token in edits.get("drop", ()):
        del vocab[token]
    file.write_text(json.dumps(content), encoding="utf-8")
    return folder


def config_of(policy: Path) -> Config:
    config = Config()
    config.actor_rollout_ref.model.path = str(policy)
    config.data.max_prompt_length, config.data.max_response_length = 100, 100
    return config


def teacher(path: Path, **options: Any) -> RewardSpec:
    return RewardSpec(
        name="big",
        kind="teacher",
        weight=1.0,
        engines={"main": engine(path=str(path), name="hf")},
        options=TeacherReward.Options(**options),
    )


def test_the_same_tokenizer_is_fine(policy: Path, tmp_path: Path):
    same = teacher(write_llama(tmp_path / "teacher"))
    assert list(teacher_problems(config_of(policy), [same])) == []
    assert list(teacher_advice(config_of(policy), [same])) == []


def test_tokens_that_only_the_teacher_has_are_fine(policy: Path, tmp_path: Path):
    from transformers import AutoTokenizer

    folder = write_llama(tmp_path / "teacher")
    more = AutoTokenizer.from_pretrained(folder)
    more.add_tokens(["<|tool|>"], special_tokens=True)
    more.save_pretrained(folder)
    assert list(teacher_problems(config_of(policy), [teacher(folder)])) == []


def test_tokens_that_the_teacher_lacks_are_a_problem(policy: Path, tmp_path: Path):
    from transformers import AutoTokenizer

    more = AutoTokenizer.from_pretrained(policy)
    more.add_tokens(["<|tool|>"], special_tokens=True)
    more.save_pretrained(policy)
    folder = write_llama(tmp_path / "teacher")
    (problem,) = teacher_problems(config_of(policy), [teacher(folder)])
    assert f"the teacher '{folder}' has another vocabulary than the policy" in problem
    assert f"1 ids differ, first {len(more) - 1}: policy '<|tool|>', teacher no token;" in problem


def test_ids_of_other_tokens_are_named_in_order(policy: Path, tmp_path: Path):
    """Two letters have changed places."""
    folder = changed(tmp_path / "teacher", rename={"a": "new", "b": "a", "new": "b"})
    (problem,) = teacher_problems(config_of(policy), [teacher(folder)])
    a, b = ord("a") - 28, ord("b") - 28
    assert "2 ids differ" in problem
    assert f"first {a}: policy 'a', teacher 'b'; {b}: policy 'b', teacher 'a';" in problem


def test_what_makes_ratings_strange_is_advice(policy: Path, tmp_path: Path):
    """Another chat template, which only matters where the teacher reads the policy's prompt, and a
    context that is too short: 1023 tokens for 1100."""
    from transformers import AutoTokenizer

    folder = write_llama(tmp_path / "teacher")
    other = AutoTokenizer.from_pretrained(folder)
    other.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    other.eos_token = "<unk>"
    other.save_pretrained(folder)
    config = config_of(policy)
    config.data.max_response_length = 1000
    context, end, template = teacher_advice(config, [teacher(folder)])
    assert "takes texts of up to 1023 tokens" in context
    assert "is 1100" in context
    assert "ends its texts with '<unk>'" in end
    assert "another chat template" in template
    assert len(list(teacher_advice(config, [teacher(folder, prompt="rm_prompt")]))) == 2
