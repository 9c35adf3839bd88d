"""Reports as HTML and markdown."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from markdown_it import MarkdownIt

from rmrl.evaluation.page import Page, html_page, markdown, write_page

HOSTILE = "<script>alert(1)</script> **b** `c` ````\n# head | [x](http://e.example) &amp;"
PAGE = Page(
    title=HOSTILE,
    tables=[[["judge", "accuracy"], [HOSTILE, "50.0 %"], ["b|c", "-"]]],
    texts=[(HOSTILE, [("prompt", HOSTILE), ("response", "plain\ntext")])],
)


class Texts(HTMLParser):
    """Tags, and the texts between them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_html_shows_texts_as_they_are() -> None:
    reader = Texts()
    reader.feed(html_page(PAGE))
    assert reader.texts.count(HOSTILE) == 5
    assert not {"script", "a", "b"} & set(reader.tags)
    assert reader.tags.count("td") == 4
    assert "50.0 %" in reader.texts


def test_markdown_shows_texts_as_they_are() -> None:
    reader = Texts()
    reader.feed(MarkdownIt("commonmark").enable("table").render(markdown(PAGE)))
    assert not {"script", "a", "b", "strong"} & set(reader.tags)
    assert reader.tags.count("td") == 4
    assert "b|c" in reader.texts
    assert HOSTILE + "\n" in reader.texts
    assert " ".join(HOSTILE.split()) in "".join(reader.texts)


def test_the_picture_is_in_the_page(tmp_path: Path) -> None:
    picture = tmp_path / "curve.png"
    picture.write_bytes(b"\x89PNG")
    write_page(Page(title="t", tables=PAGE.tables, picture=picture), tmp_path / "report.json")
    assert "![curve](curve.png)" in (tmp_path / "report.md").read_text()
    page = (tmp_path / "report.html").read_text()
    assert "data:image/png;base64,iVBORw==" in page
    assert not re.search(r"(?:src|href)=.(?!data:)", page)
    without = Page(title="t", tables=PAGE.tables, picture=tmp_path / "none.png")
    assert "<img" not in html_page(without)
    assert "![" not in markdown(without)
