"""Where a benchmark's results go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def print_and_write(results: Any, out: Path | None) -> None:
    """Print results as JSON, and write them to `out`, if it is there."""
    text = json.dumps(results, indent=1)
    print(text)
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")
