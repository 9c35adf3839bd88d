"""Where the code of a response begins and ends."""

from __future__ import annotations

import time

import pytest

from rmrl.rewards.kinds.code.extract import code_block, fenced_blocks


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ("So:\n```python\nx = 1\n```\nDone.", "x = 1"),
        ("```py\nx = 1\n```\nor\n```python\nx = 2\n```", "x = 2"),
        ("```python\nx = 1\n```\nprints\n```text\n1\n```", "x = 1"),
        # Without a label it is mostly what the program prints
        ("```python\nx = 1\n```\nprints\n```\n1\n```", "x = 1"),
        ("```\nx = 1\n```\nthen\n```\nx = 3\n```", "x = 3"),
        ("```python\nx = 1\n```\n```python\n\n```", "x = 1"),
        ("```python\n```", None),
        ("Here: ```python\nx = 1\n```", "x = 1"),
        ("- ```text\n1\n```\n```python\nx = 1\n```", "x = 1"),
        ("```python:main.py\nx = 1\n```", "x = 1"),
        ("```python\ns = '''\n```\n'''\nx = 1\n```", "s = '''\n```\n'''\nx = 1"),
        (
            '```python\ns = """a\n```\nb\n```\n"""  # c"""\nt = "\\"" + "\'\'\'"\n```\nIt is\n```\n1\n```',
            's = """a\n```\nb\n```\n"""  # c"""\nt = "\\"" + "\'\'\'"',
        ),
        # A string that is never closed ends with its block
        ("```python\ns = '''\n```\nNow:\n```python\nx = '''1'''\n```", "x = '''1'''"),
        ("<think>\n```python\nx = 0\n```\n</think>\n```python\nx = 1\n```", "x = 1"),
        ("<think>\n```python\nx = 0\n```", None),
        # Marks behind the beginning are text
        ("```python\nx = 1\n```\n<think>and now", "x = 1"),
        ("```python\ns = '<think>'\nx = 1\n```", "s = '<think>'\nx = 1"),
        ("```python\nx = 1\n```\nends with </think>", None),
        ("```python\ns = '<think></think>'\n```", "s = '<think></think>'"),
        (
            "<|START_THINKING|>\n```python\nx = 0\n```\n<|END_THINKING|>\n```python\nx = 1\n```",
            "x = 1",
        ),
        ("<|channel|>analysis<|message|>```python\nx = 0\n```<|end|>", None),
        ("```python\ndef f():\n    return 1", "def f():\n    return 1"),
        ("~~~python\nx = '''```'''\n~~~", "x = '''```'''"),
        ("````python\n```\n````", "```"),
        ("1. First\n   ```python\n   if x:\n     y\n   ```", "if x:\n  y"),
        ("```Python title=main.py\nx\n```", "x"),
        ("```{python}\nx\n```", None),
        ("x = 1", None),
        ("```cpp\nint x;\n```", None),
        ("use `x` and ```y``` here", None),
        ("", None),
    ],
)
def test_the_last_block_of_the_language(response: str, code: str | None) -> None:
    assert code_block(response, "python") == code


def test_without_a_block_the_whole_text_where_that_is_allowed() -> None:
    assert code_block("    return 1", "python", needs_block=False) == "return 1"
    assert code_block("```cpp\nx\n```", "python", needs_block=False) is None
    assert code_block(" \n", "python", needs_block=False) is None


def test_a_thinking_part_that_the_prompt_began() -> None:
    text = "```python\nx = 0\n```\n"
    assert code_block(text, "python", opened=True) is None
    assert code_block(text + "</think>\n```py\nx = 1\n```", "python", opened=True) == "x = 1"
    assert code_block(text + "</think>", "python", opened=False) == "x = 0"


def test_labels_of_other_languages() -> None:
    assert code_block("```c++\nint x;\n```", "cpp") == "int x;"
    assert code_block("```rust\nfn\n```", "rust") == "fn"


def test_time_is_linear() -> None:
    """A second each, where a search from every line to the text's end would take half an hour."""
    n = 100_000
    begun = time.process_time()
    for text in (
        "```\n" * n + "`" * 4 * n + "\n" + "~~~ ``` {" * n,
        "```python\nx = '''\n" + "```\n" * 2 * n + "'''",
        "```python\nx = '''\n```\n" * n,
        "```python\n" + '"\\"' * 2 * n + "\n" + "a```b" * n,
    ):
        fenced_blocks(text)
        code_block(text, "python")
    assert time.process_time() - begun < 120
