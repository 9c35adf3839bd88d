"""Write docs/keys-of-verl.md from the table in rmrl/config/compat/keys_of_verl.yaml."""

from __future__ import annotations

from pathlib import Path

from rmrl.config.compat.keys_of_verl import SECTIONS, KeyFate
from scripts.wrap_prose import wrap

PAGE = Path(__file__).resolve().parent.parent / "docs" / "keys-of-verl.md"
HEAD = """# The keys of verl

What becomes of each key of a verl command line, written from the table in `rmrl/config/compat/keys_of_verl.yaml` by `scripts/write_verl_keys.py`. Keys that
stand in [configuration](configuration.md) and not here have verl's meaning. `rmrl migrate SCRIPT` shows it for a script of your own;
[coming from verl](coming-from.md#verl) says the rest.

- **renamed**: the same under another name; **converted**: the meaning depends on other keys of the line.
- **no effect**: leaving it out changes no result. One line at the start names these keys.
- **refused**: the run does not start, and the sentence says what to use. `null`, `False` and the values under "as here" pass.

`(a|b)` is one of several names, `.*` a section and all below it. The first row that matches a key counts.
"""


def page() -> str:
    """The whole page."""
    sections = [f"\n## {title}\n\n{_table(rows)}" for title, rows in SECTIONS.items()]
    return wrap(HEAD + "".join(sections))


def _table(rows: tuple[KeyFate, ...]) -> str:
    lines = ["| key | | here | as here |", "|---|---|---|---|"]
    lines += [
        f"| {_code(row.pattern)} | {row.fate} | {_here(row)} | {_accepted(row)} |" for row in rows
    ]
    return "\n".join(lines) + "\n"


def _here(row: KeyFate) -> str:
    target = _code(row.target) if row.target else ""
    return _cell(": ".join(part for part in (target, row.why) if part))


def _accepted(row: KeyFate) -> str:
    values = [
        value
        for value in row.accepts
        if value not in (None, "") and not (row.fate == "refused" and value is False)
    ]
    return ", ".join(_code(str(value)) for value in dict.fromkeys(values))


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def _cell(text: str) -> str:
    """Tags outside code would not be shown."""
    parts = text.split("`")
    return "`".join(
        part if number % 2 else part.replace("<", "\\<") for number, part in enumerate(parts)
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
