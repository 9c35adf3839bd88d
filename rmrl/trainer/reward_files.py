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
from rmrl.rewards.calibration.check import map_of
from rmrl.rewards.kinds.facts import kind_facts
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer.output_dir import RUN_FILE

_KEY = "reward_files"


def contents_of(spec: RewardSpec) -> dict[str, str]:
    """Return what a reward reads -> sha256 of it, for what it reads at all."""
    contents: dict[str, str] = {}
    if spec.dropin is not None:
        contents["code"] = spec.dropin.code_hash
    calibration = map_of(spec)
    if calibration is not None:
        contents["calibration"] = json.dumps(calibration.to_json(), sort_keys=True)
    file_content = kind_facts(spec.kind).file_content
    if file_content is not None:
        contents["file"] = file_content(spec.options)
    digests: dict[str, str] = {}
    for what, content in contents.items():
        if content:
            text = content.encode(errors="surrogatepass")
            digests[what] = hashlib.sha256(text).hexdigest()
    return digests


def changes_since_start(folder: Path, specs: Iterable[RewardSpec]) -> list[str]:
    """Return a sentence for each reward whose files are not those with which the run in `folder`
    was last started, and record those of now. [] where there is no checkpoint to go on from."""
    path = folder / RUN_FILE
    run = json.loads(path.read_bytes())
    now = {spec.name: contents_of(spec) for spec in specs}
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
