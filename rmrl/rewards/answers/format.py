"""What verifiers share: a reference's text, and contents of \\boxed{...} in a response, found
in time linear in the text."""

from __future__ import annotations


def reference_text(ground_truth: object) -> str:
    """Return the reference as text. Raises ValueError where the row has none, or several."""
    if ground_truth is None:
        raise ValueError(
            "the row has no reference answer (ground_truth); give one, or name the column that"
            " holds it, data.columns.reference=..."
        )
    if isinstance(ground_truth, list | dict):
        raise ValueError(
            f"the row's reference is {str(ground_truth)[:80]}; this rule compares with one text"
        )
    return str(ground_truth)


def last_boxed(response: str) -> str | None:
    """Return the content of the last \\boxed{...}, braces balanced; None where there is none or it
    is not closed."""
    _, mark, tail = response.rpartition("\\boxed{")
    if not mark:
        return None
    depth = 1
    for position, character in enumerate(tail):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return tail[:position]
    return None
