"""Generated pages are up to date."""

from __future__ import annotations

from scripts.write_config_docs import PAGE, page


def test_configuration_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python scripts/write_config_docs.py"
