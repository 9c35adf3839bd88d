"""Secrets of a command line are hidden."""

from __future__ import annotations

import shlex

import pytest

from rmrl.config.hidden import hide_secrets
from rmrl.config.plain_checks import keys_of
from rmrl.config.schema import CalibrateConfig, Config, EvalConfig, ScoreConfig, ServeConfig


@pytest.mark.parametrize(
    ("word", "recorded"),
    [
        ("reward.specs.judge.api_key=abc123", "reward.specs.judge.api_key=<secret>"),
        ("+a.env_vars.HF_TOKEN=abc=def", "+a.env_vars.HF_TOKEN=<secret>"),
        ("+a.env_vars.OPENAI_KEY=abc", "+a.env_vars.OPENAI_KEY=<secret>"),
        ("++db.password=p,a]s}s w", "++db.password=<secret>"),
        ("x.apiKey=abc", "x.apiKey=<secret>"),
        (
            "reward.specs.j.headers={Authorization: Bearer abc.def, X-Team: math}",
            "reward.specs.j.headers={Authorization: <secret>, X-Team: math}",
        ),
        ("headers.Authorization='Bearer abc'", "headers.Authorization=<secret>"),
        (
            "reward.specs.j.headers={X-Api-Key: 'a,b', X-Team: math}",
            "reward.specs.j.headers={X-Api-Key: <secret>, X-Team: math}",
        ),
        ('x={"password": "a b", "n": 1}', 'x={"password": <secret>, "n": 1}'),
        (
            "reward.specs.j.url=https://me:p@ss@host:80/v1",
            "reward.specs.j.url=https://<secret>@host:80/v1",
        ),
        (
            "reward.specs.j.url=https://host/v1?api_key=abc&n=2&token=d",
            "reward.specs.j.url=https://host/v1?api_key=<secret>&n=2&token=<secret>",
        ),
        ("note=sk-proj-0123456789abcdef", "note=<secret>"),
        ("note=hf_abcdefghijklmnopqrst", "note=<secret>"),
        ("--api-key=abc", "--api-key=<secret>"),
        ("proxy=Bearer abcdef123", "proxy=Bearer <secret>"),
    ],
)
def test_a_secret_is_hidden(word: str, recorded: str) -> None:
    assert hide_secrets(["rmrl", word]) == ["rmrl", recorded]


def test_the_word_behind_a_flag_is_hidden() -> None:
    words = ["--token", "abc", "data.files=a.jsonl", "--token", "--full"]
    recorded = ["--token", "<secret>", "data.files=a.jsonl", "--token", "--full"]
    assert hide_secrets(words) == recorded


@pytest.mark.parametrize(
    "word",
    [
        "reward.models=[gsm8k,judge]",
        "reward.specs.j.api_key_env=OPENAI_API_KEY",
        "reward.specs.j.api_key=${oc.env:OPENAI_API_KEY}",
        "serve.token_env=RMRL_TOKEN",
        "data.prompt_key=question",
        "data.columns={prompt: question, id: uid}",
        "data.max_response_length=512",
        "data.tokenizer=org/model",
        "x.eos_token=</s>",
        "actor_rollout_ref.actor.loss_agg_mode=token-mean",
        "reward.specs.j.url=https://host:80/v1?n=2",
        "data.files=hf://org/data@main/train",
    ],
)
def test_what_is_no_secret_is_shown(word: str) -> None:
    assert hide_secrets([word]) == [word]


@pytest.mark.parametrize("root", [Config, ScoreConfig, ServeConfig, EvalConfig, CalibrateConfig])
def test_no_key_of_the_configuration_is_taken_for_a_secret(root: type) -> None:
    words: list[str] = []
    for key, _ in keys_of(root()):
        words.append(f"{key}=1")
    assert len(words) > 20
    assert hide_secrets(words) == words


def test_a_command_line_with_hidden_words_is_read_back_by_a_shell() -> None:
    line = shlex.join(hide_secrets(["rmrl", "train", "a.password=x y", "b=1"]))
    assert shlex.split(line) == ["rmrl", "train", "a.password=<secret>", "b=1"]
