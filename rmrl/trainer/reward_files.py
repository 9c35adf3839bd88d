"""Files that rewards read beside the configuration: the code of drop-ins, criteria, calibrations.

The output folder's run.json holds a digest of each. A resume with other ones goes on, since a rule
that raised has to be mended somehow, and says so: rewards before and after it are not the same
measure. Checkpoints of reward models are not compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from rmrl.files import write_whole
from rmrl.rewards.calibration.contents import contents_of
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer.output_dir import RUN_FILE

_KEY = "reward_files"


def changes_since_start(folder: Path, specs: Iterable[RewardSpec]) -> list[str]:
    """Return a sentence for each reward whose files are not those with which the run in `folder`
    was last started, and record those of now. [] where there is no checkpoint to go on from."""
    path = folder / RUN_FILE
    run = json.loads(path.read_bytes())
    now: dict[str, dict[str, str]] = {}
    for spec in specs:
        digests: dict[str, str] = {}
        for what, content in contents_of(spec).items():
            text = content.encode(errors="surrogatepass")
            digests[what] = hashlib.sha256(text).hexdigest()
        now[spec.name] = digests
    before = run.get(_KEY, now) if any(folder.glob("checkpoints/step_*")) else now
    lines: list[str] = []
    for name, digests in now.items():
        known = before.get(name, digests)
        parts = dict.fromkeys([*known, *digests])
        changed = [what for what in parts if known.get(what) != digests.get(what)]
        if changed:
            lines.append(
                f"reward '{name}': its {' and its '.join(changed)} was changed since this run was"
                " last started; scores from here on are not comparable with those before. If that"
                " is not meant, put the old one back and resume from an earlier checkpoint"
            )
    if run.get(_KEY) != now:
        write_whole(path, json.dumps({**run, _KEY: now}, indent=1, ensure_ascii=False) + "\n")
    return lines
