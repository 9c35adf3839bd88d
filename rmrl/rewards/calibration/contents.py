"""Files that a reward reads beside its configuration, which holds no more than their paths."""

from __future__ import annotations

import json

from rmrl.rewards.calibration.check import map_of
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.specs.spec import RewardSpec


def contents_of(spec: RewardSpec) -> dict[str, str]:
    """Return what the reward reads -> its content, for what it reads at all: the code of its
    drop-in (as a hash), its calibration, the file that its entries name."""
    contents: dict[str, str] = {}
    if spec.dropin is not None:
        contents["code"] = spec.dropin.code_hash
    calibration = map_of(spec)
    if calibration is not None:
        contents["calibration"] = json.dumps(calibration.to_json(), sort_keys=True)
    contents["file"] = REWARD_KINDS[spec.kind].file_content(spec.options)
    return {what: content for what, content in contents.items() if content}
