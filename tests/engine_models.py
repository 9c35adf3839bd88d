"""Tiny random checkpoints, written in a second: enough of a model for every engine to load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import BertConfig, LlamaConfig

VOCABULARY = 1024


_SHAPE = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "max_position_embeddings", "pad_token_id", "bos_token_id",
    "eos_token_id", "initializer_range",
)  # fmt: skip
"""Entries that every family's config has."""


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of single characters and filler words; ids 0, 1, 2 are <pad>, <s>, </s>."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>", "<unk>", *[chr(c) for c in range(32, 127)]]
    words += [f"w{i}" for i in range(len(words), VOCABULARY)]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
    )
    fast.chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if"
        " add_generation_prompt %}assistant: {% endif %}"
    )
    fast.save_pretrained(folder)


def llama_config(layers: int = 2) -> LlamaConfig:
    """Config of the tiny Llama: tied embeddings, head size 32 (smaller ones no engine supports)."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        initializer_range=0.1,
    )


def write_llama(folder: Path, *, seed: int = 0) -> Path:
    """A causal language model with its tokenizer."""
    from transformers import LlamaForCausalLM

    torch.manual_seed(seed)
    LlamaForCausalLM(llama_config()).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_llama_scorer(
    folder: Path,
    *,
    labels: Sequence[str] = ("LABEL_0",),
    problem_type: str = "",
    seed: int = 0,
    padding: int = 0,
) -> Path:
    """A Llama with a head of these labels: a scalar one unless told otherwise."""
    from transformers import LlamaForSequenceClassification

    torch.manual_seed(seed)
    config = llama_config()
    config.pad_token_id = padding
    config.id2label = dict(enumerate(labels))
    if problem_type:
        config.problem_type = problem_type
    LlamaForSequenceClassification(config).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_gemma_scorer(folder: Path, *, seed: int = 0) -> Path:
    """Gemma 3's text model with a scalar head and, in one layer, a window that holds 32 tokens."""
    from transformers import Gemma3TextConfig, Gemma3TextForSequenceClassification

    torch.manual_seed(seed)
    shape = {name: getattr(llama_config(), name) for name in _SHAPE}
    layers = ["sliding_attention", "full_attention"]
    config = Gemma3TextConfig(
        **shape, num_labels=1, sliding_window=32, query_pre_attn_scalar=32, layer_types=layers
    )
    Gemma3TextForSequenceClassification(config).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_headless_scorer(folder: Path) -> Path:
    """A checkpoint whose config promises a scalar head that its weights do not hold."""
    from safetensors.torch import load_file, save_file

    write_llama_scorer(folder)
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {name: t for name, t in tensors.items() if name != "score.weight"},
        folder / "model.safetensors",
    )
    return folder


def write_bert_scorer(
    folder: Path, *, labels: Sequence[str] = ("LABEL_0",), problem_type: str = "", seed: int = 0
) -> Path:
    """A BERT pair scorer of these labels, with token types and 64 positions."""
    from transformers import BertForSequenceClassification

    torch.manual_seed(seed)
    config = _bert_config()
    config.id2label = dict(enumerate(labels))
    if problem_type:
        config.problem_type = problem_type
    BertForSequenceClassification(config).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_token_scorer(folder: Path, *, labels: int = 3, seed: int = 0) -> Path:
    """A Llama with a head (and bias) of `labels` outputs at every token."""
    from transformers import LlamaForTokenClassification

    torch.manual_seed(seed)
    config = llama_config()
    config.num_labels = labels
    model = LlamaForTokenClassification(config)
    torch.nn.init.normal_(model.score.bias)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_process_scorer(folder: Path, *, seed: int = 0) -> Path:
    """A Qwen2ForProcessRewardModel of 2 labels: a head of two layers, whose class comes with the
    real checkpoints only."""
    import json

    from safetensors.torch import load_file, save_file
    from transformers import Qwen2Config, Qwen2Model

    torch.manual_seed(seed)
    shared = {
        name: getattr(llama_config(), name)
        for name in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    }
    config = Qwen2Config(
        **shared,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=0.1,
    )
    Qwen2Model(config).save_pretrained(folder)
    tensors = {
        f"model.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()
    }
    for layer, outputs in ((0, config.hidden_size), (2, 2)):
        tensors[f"score.{layer}.weight"] = torch.randn(outputs, config.hidden_size) * 0.1
        tensors[f"score.{layer}.bias"] = torch.randn(outputs)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((folder / "config.json").read_text()) | {
        "architectures": ["Qwen2ForProcessRewardModel"]
    }
    (folder / "config.json").write_text(json.dumps(settings))
    write_tokenizer(folder)
    return folder


GATED_CODE = """
import torch
from transformers import LlamaModel, LlamaPreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

class LlamaForRewardModelWithGating(LlamaPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.model = LlamaModel(config)
        self.regression_layer = torch.nn.Linear(config.hidden_size, 5, bias=False)
        self.gating = torch.nn.Linear(config.hidden_size, 5, bias=False)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, **rest):
        hidden = self.model(input_ids, attention_mask=attention_mask).last_hidden_state
        pads = torch.eq(input_ids, self.config.pad_token_id).int().argmax(-1) - 1
        last = hidden[torch.arange(len(hidden)), pads % input_ids.shape[-1]]
        gates = self.gating(hidden[:, 0]).softmax(-1)
        return SequenceClassifierOutput(logits=(gates * self.regression_layer(last)).sum(-1))
"""


def write_gated_scorer(folder: Path, *, seed: int = 0) -> Path:
    """A Llama with attributes that a gating network sums, in code of the checkpoint's own: the form
    of ArmoRM, which finds the last token by the pad token and gives one score per row."""
    import json

    from safetensors.torch import load_file, save_file
    from transformers import LlamaModel

    torch.manual_seed(seed)
    LlamaModel(llama_config()).save_pretrained(folder)
    tensors = {
        f"model.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()
    }
    for name in ("regression_layer.weight", "gating.weight"):
        tensors[name] = torch.randn(5, llama_config().hidden_size) * 0.1
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    name = "LlamaForRewardModelWithGating"
    settings = json.loads((folder / "config.json").read_text()) | {
        "architectures": [name],
        "auto_map": {"AutoModelForSequenceClassification": f"modeling_custom.{name}"},
    }
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "modeling_custom.py").write_text(GATED_CODE)
    write_tokenizer(folder)
    return folder


def write_bert_token_scorer(folder: Path, *, labels: int = 2, seed: int = 0) -> Path:
    """A BERT with a head of `labels` outputs at every token and 64 positions."""
    from transformers import BertForTokenClassification

    torch.manual_seed(seed)
    config = _bert_config()
    config.num_labels = labels
    BertForTokenClassification(config).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_encoder(folder: Path, *, seed: int = 0) -> Path:
    """A plain BERT encoder with 64 positions; its tokenizer knows single characters."""
    from transformers import BertModel

    torch.manual_seed(seed)
    BertModel(_bert_config(), add_pooling_layer=False).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def _bert_config() -> BertConfig:
    from transformers import BertConfig

    return BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        initializer_range=0.2,
    )


def write_adapter(
    folder: Path, base: Path, *, seed: int = 0, rank: int = 4, merged: Path | None = None
) -> Path:
    """A LoRA of peft over attention and MLP of a Llama, with its scalar head as a full module where
    it has one; `merged`: also write the base with the adapter in it."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(seed)
    scores = "scorer" in base.name or "reward" in base.name
    loader = AutoModelForSequenceClassification if scores else AutoModelForCausalLM
    model = loader.from_pretrained(base, dtype=torch.float32)
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules=["q_proj", "v_proj", "down_proj"],
        task_type="SEQ_CLS" if scores else "CAUSAL_LM",
    )
    adapted = get_peft_model(model, config)
    for name, tensor in adapted.named_parameters():
        if "lora_B" in name or "modules_to_save" in name:
            torch.nn.init.normal_(tensor, std=0.05)  # B starts at 0, which would change nothing
    adapted.save_pretrained(folder)
    if merged is not None:
        adapted.merge_and_unload().save_pretrained(merged)
        AutoTokenizer.from_pretrained(base).save_pretrained(merged)
    return folder
