"""Default rewards of a command line that names none: each row is scored by the rule of its
data_source, if there is one.

Other trainers choose a rule by data_source, so their command lines for known data sets name none. A
source without a rule is an error before anything starts, never a row without a verdict. The older
section `reward_model` starts from the same rules.
"""

from __future__ import annotations

from rmrl.assemble.rules_by_source import RULES, choose_rules_of, rules_are_needed
from rmrl.config.schema import Config
from rmrl.data.dataset import iterate_rows

__all__ = ["RULES", "choose_rules"]


def choose_rules(config: Config) -> list[str]:
    """Enter the rules of the rows' data_source in config.reward, in place, where they are needed.
    Return the notice lines.

    Raises ConfigError naming the sources that have no rule, DataError as reading the files does.
    """
    data = config.data
    files = {"train": data.train_files, "val": data.val_files}
    if not rules_are_needed(config) or not any(files.values()):
        return []
    sources: dict[str, None] = {}
    for split in ("train", "val"):
        if files[split]:
            rows = iterate_rows(data, split=split)
            sources |= dict.fromkeys(row.data_source for row in rows)
    return choose_rules_of(config, sources)
