"""The catalogue as text: for the console, and for the page of the documentation."""

from __future__ import annotations

from textwrap import wrap

from rmrl.rewards.catalogue.find import Preset, presets

_WIDTH = 100


def catalogue_text() -> str:
    """Every family: its presets, what they read, licence, paper and how they were tried."""
    sections: list[str] = []
    of_family: dict[str, list[Preset]] = {}
    for preset in presets().values():
        of_family.setdefault(preset.card.title, []).append(preset)
    for title, family in of_family.items():
        card = family[0].card
        lines = [f"{title} (kind {family[0].spec['kind']})"]
        for preset in family:
            lines.append(f"  preset:{preset.name}  {preset.path}  [licence: {preset.licence.name}]")
        notices = dict.fromkeys(preset.licence.notice for preset in family)
        for notice in filter(None, notices):
            lines += _indented("terms", notice)
        lines += _indented("reads", card.reads)
        lines += _indented("trained", card.trained)
        lines += _indented("paper", card.paper)
        lines += _indented("source", card.source)
        lines += _indented("tried", card.tried)
        if card.remote_code:
            lines.append("  runs code of its checkpoint: needs trust_remote_code=true")
        sections.append("\n".join(lines))
    return "\n\n".join(sections)


def catalogue_rows() -> list[str]:
    """The table of docs/rewards/catalogue.md, a line per preset."""
    rows = ["| preset | model | kind | licence of the weights |", "|---|---|---|---|"]
    for preset in presets().values():
        model = f"[{preset.path}](https://huggingface.co/{preset.path})"
        kind = preset.spec["kind"]
        rows.append(f"| `{preset.name}` | {model} | `{kind}` | {preset.licence.name} |")
    return rows


def training_rows() -> list[str]:
    """The page's table on how the families were trained."""
    rows = ["| family | trained | paper |", "|---|---|---|"]
    cards = {preset.card.title: preset.card for preset in presets().values()}
    for title, card in cards.items():
        number = card.paper.rpartition("/")[2]
        rows.append(f"| {title} | {card.trained} | [{number}]({card.paper}) |")
    return rows


def _indented(what: str, text: str) -> list[str]:
    return wrap(f"{what}: {text}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
