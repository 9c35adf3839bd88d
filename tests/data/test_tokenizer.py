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
    file = tmp_path / "t.jinja"
    file.write_text(text)
    for template in (text, str(file)):
        tokenizer = load_tokenizer(saved, trust_remote_code=False, chat_template=template)
        assert tokenizer.chat_template == text


@pytest.mark.parametrize(
    ("path", "template", "named"),
    [
        ("{tmp}/tok", "gone.jinja", "custom_chat_template: saw 'gone.jinja'"),
        ("{tmp}/gone", None, "saw '.*gone'.*tokenizer.json.*hub id"),
        ("{tmp}/weights", None, "model.safetensors.*tokenizer.json"),
        ("{tmp}/torn", None, "could not be loaded"),
        ("nobody/no-such-model", None, "saw 'nobody/no-such-model'.*could not be loaded.*hub id"),
        ("", None, r"actor_rollout_ref\.model\.path: saw ''"),
    ],
)
def test_what_cannot_be_loaded(saved, tmp_path, monkeypatch, path, template, named):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for folder, file in (("weights", "model.safetensors"), ("torn", "tokenizer.json")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text("{")
    path = path.replace("{tmp}", str(tmp_path))
    template_of_call = {} if template is None else {"chat_template": template}
    with pytest.raises(ConfigError, match=named):
        load_tokenizer(path, trust_remote_code=False, **template_of_call)


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
