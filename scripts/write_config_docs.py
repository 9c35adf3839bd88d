"""Write docs/configuration.md from the dataclasses, so that the page cannot differ from the code.

python scripts/write_config_docs.py            (tests/test_docs.py fails while the page is out of date)
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmrl.config.schema import Config

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
HEAD = """# Configuration

Every key with its default, written from the dataclasses in `rmrl/config/schema` by `scripts/write_config_docs.py`. Give keys on the
command line (`trainer.seed=3`, lists as `[a,b]`), or in YAML files of your own with `--config-dir`.
`python -m rmrl.main_ppo --cfg job` prints the composed result, and each run writes it to `config.yaml` in its folder. Keys of similar
trainers that have no effect here are refused with what to use instead (`rmrl/config/refused.py`); the older `reward_model.*` and
`custom_reward_function.*` are translated.

All problems are reported at once, before Ray, a GPU or a model is touched, with exit code 2.
"""


def page() -> str:
    """The whole page."""
    sections = [_table(prefix, cls) for prefix, cls in _classes("", Config)]
    return HEAD + "\n" + "\n\n".join(section for section in sections if section) + "\n"


def _classes(prefix: str, cls: type) -> Iterator[tuple[str, type]]:
    yield prefix, cls
    for name, annotation in typing.get_type_hints(cls).items():
        if dataclasses.is_dataclass(annotation):
            yield from _classes(f"{prefix}{name}.", typing.cast(type, annotation))


def _table(prefix: str, cls: type) -> str:
    notes = _notes(cls)
    rows = [
        f"| `{field.name}` | `{_default(field)}` | {notes.get(field.name, '')} |"
        for field in dataclasses.fields(cls)
        if not dataclasses.is_dataclass(typing.get_type_hints(cls)[field.name])
    ]
    if not rows:
        return ""
    title = f"## `{prefix.rstrip('.')}`" if prefix else "## Older names"
    return "\n".join([title, "", "| key | default | |", "|---|---|---|", *rows])


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default if field.default is not dataclasses.MISSING else field.default_factory()  # type: ignore[misc]
    if value is None:
        return "null"
    return "[" + ",".join(map(str, value)) + "]" if isinstance(value, list) else str(value) or "''"


def _notes(cls: type) -> dict[str, str]:
    """Field name -> the docstring line under it."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    notes: dict[str, str] = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            value = below.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                notes[field.target.id] = " ".join(value.value.split()).replace("|", "\\|")
    return notes


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
