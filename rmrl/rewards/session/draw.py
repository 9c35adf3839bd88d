"""Draw the rows in a batch about which watchers (rewards with the entry `watch`) are asked.

A row is drawn where h(seed, step, prompt, response) < rows, with h uniform in [0, 1) and prompt and
response as texts. A resumed run draws the same rows, in whatever order responses arrive and however
rows are cut into files and batches. Every call of a trainer draws other rows. Equal responses to
equal prompts are drawn together, at no bias. Rewards that compare a prompt's responses are asked
about all of them or none: their h takes the group instead. Shares are nested: a watcher with 5 % of
the rows is asked about some of the rows that a watcher with 10 % sees.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Literal

from rmrl.rewards.session.items import ResponseRow
from rmrl.rewards.specs.spec import Watch
from rmrl.types import ScoreResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One batch's draw."""

    seed: int = 0
    step: int = 0
    """The run's step. 0 where there are no steps (files, servers): `every` has no effect."""
    rows: Literal["share", "validation", "all", "none"] = "share"
    """validation: all rows for watchers with `validation`, none for others."""

    def skipped(
        self, watch: Watch | None, row: ResponseRow, *, whole_groups: bool
    ) -> ScoreResult | None:
        """Return the result for a row that was not drawn. None where the reward is to be asked.

        `whole_groups`: all responses to a prompt are drawn, or none.
        """
        if watch is None or self.rows == "all" or (self.rows == "validation" and watch.validation):
            return None
        if self.rows != "share":
            return _result("it watches training alone")
        if self.step % watch.every:
            return _result(f"it watches every {watch.every} steps")
        parts = [str(self.seed), str(self.step)]
        if whole_groups and row.group_key:
            # The numbers of rows, which are in the id of a prompt, differ within a group.
            parts.append(row.group_key.hex())
        else:
            turns = list(map(dict, row.prompt.messages))
            parts.append(json.dumps(turns, sort_keys=True, default=str))
            parts.append(row.prompt.id if whole_groups else row.text)
        text = "\0".join(parts).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, digest_size=8).digest()
        if int.from_bytes(digest, "big") / 2**64 < watch.rows:
            return None
        return _result(f"it watches {watch.rows:.3g} of the rows")


ANY_STEP = Draw()
"""The draw for files and servers, which have no steps."""


def _result(why: str) -> ScoreResult:
    return ScoreResult(value=None, status="skipped", detail=f"not asked: {why}")
