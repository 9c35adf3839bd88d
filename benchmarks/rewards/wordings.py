"""What the two judges that share a checkpoint are told; `functions/union.py` tells the same to one
judge."""

from __future__ import annotations

Messages = list[dict[str, str]]

SAMPLING = {"temperature": 0.0, "max_tokens": 8, "stop": ["\n"]}


def copying(reply: str) -> Messages:
    """Asks for the final answer."""
    return [
        {"role": "system", "content": "You read a reply and copy its final answer."},
        {
            "role": "user",
            "content": (
                "Reply: 6 * 8 = 48. Then 48 - 10 = 38.\n\nWhat is its final answer? Write the"
                " number, nothing else."
            ),
        },
        {"role": "assistant", "content": "38"},
        {
            "role": "user",
            "content": (
                f"Reply: {reply}\n\nWhat is its final answer? Write the number, nothing else."
            ),
        },
    ]


def checking(reply: str) -> Messages:
    """Asks whether the reply shows its work."""
    return [
        {"role": "system", "content": "You say yes or no."},
        {
            "role": "user",
            "content": (
                "Does this reply show how it came to its answer? Say yes or no. Reply: It is 38."
            ),
        },
        {"role": "assistant", "content": "no"},
        {
            "role": "user",
            "content": (
                f"Does this reply show how it came to its answer? Say yes or no. Reply: {reply}"
            ),
        },
    ]


def written(results: list[str]) -> list[float]:
    """1 where the judge wrote anything: these judges are timed, not believed."""
    return [float(bool(text.strip())) for text in results]
