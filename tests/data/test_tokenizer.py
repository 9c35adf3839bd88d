from __future__ import annotations

import pytest

from rmrl.config.schema import ModelConfig
from rmrl.errors import ConfigError
from rmrl.tokenizer import load_tokenizer, policy_tokenizer


@pytest.fixture
def saved(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path / "tok")
    return str(tmp_path / "tok")


def test_a_folder(saved):
    tokenizer = load_tokenizer(saved, trust_remote_code=False)
    assert tokenizer("a b")["input_ids"] == [5, 6]
    assert tokenizer.pad_token == "<end>"


def test_a_template_as_text_or_file_replaces_its_own(saved, tmp_path):
    text = "{{ messages[0].content }}"
    assert load_tokenizer(saved, trust_remote_code=False, chat_template=text).chat_template == text
    (tmp_path / "t.jinja").write_text(text)
    assert (
        load_tokenizer(
            saved, trust_remote_code=False, chat_template=str(tmp_path / "t.jinja")
        ).chat_template
        == text
    )


def test_a_template_that_is_neither(saved):
    with pytest.raises(
        ConfigError, match=r"custom_chat_template: saw 'gone.jinja', which is neither"
    ):
        load_tokenizer(saved, trust_remote_code=False, chat_template="gone.jinja")


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(
        ConfigError,
        match=(
            r"saw '.*gone', which does not exist; need a folder with tokenizer.json .* or a hub id"
        ),
    ):
        load_tokenizer(str(tmp_path / "gone"), trust_remote_code=False)


def test_a_folder_without_a_tokenizer(tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(
        ConfigError, match=r"holding model.safetensors; need a folder with tokenizer.json"
    ):
        load_tokenizer(str(tmp_path), trust_remote_code=False)


def test_a_torn_tokenizer(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match="could not be loaded"):
        load_tokenizer(str(tmp_path), trust_remote_code=False)


def test_a_name_no_hub_has(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        ConfigError, match=r"saw 'nobody/no-such-model', which could not be loaded .* or a hub id"
    ):
        load_tokenizer("nobody/no-such-model", trust_remote_code=False)


def test_no_path():
    with pytest.raises(ConfigError, match=r"actor_rollout_ref\.model.path: saw ''"):
        load_tokenizer("", trust_remote_code=False)


def test_that_of_a_model_reads_its_own_folder_or_the_one_named(saved, tmp_path):
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}")
    of_model = policy_tokenizer(
        ModelConfig(path=saved, custom_chat_template=str(tmp_path / "t.jinja"))
    )
    assert of_model.chat_template == "{{ messages[0].content }}"
    assert of_model.pad_token == "<end>"
    named = policy_tokenizer(
        ModelConfig(path=str(tmp_path / "weights alone"), tokenizer_path=saved)
    )
    assert named("a b")["input_ids"] == [5, 6]
    with pytest.raises(ConfigError, match=r"set actor_rollout_ref\.model\.tokenizer_path"):
        policy_tokenizer(ModelConfig(path=str(tmp_path / "gone")))
