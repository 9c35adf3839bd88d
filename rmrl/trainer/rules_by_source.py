"""A command line that names no reward: each row is scored by the rule that belongs to its data_source, if there is one.

Other trainers choose a rule by data_source, so their command lines for known data sets name none. A source without a rule is an error
before anything starts, never a row without a verdict.
"""

from __future__ import annotations

from rmrl.config.schema import Config
from rmrl.data.dataset import iterate_rows
from rmrl.errors import ConfigError

RULES: dict[str, str] = {
    "openai/gsm8k": "gsm8k",
    "hendrycks/math": "math_verify",
    "lighteval/MATH": "math_verify",
    "DigitalLearningGmbH/MATH-lighteval": "math_verify",
    "HuggingFaceH4/MATH-500": "math_verify",
    "GAIR/LIMR": "math_verify",
}
"""data_source -> file of reward_functions/."""


def choose_rules(config: Config) -> list[str]:
    """Fill reward.models, or reward.by_source where rules differ, in place, if no reward is named; returns the notice lines.

    Reads the rows' data_source. Raises ConfigError naming the sources that have no rule, DataError as reading the files does.
    """
    reward, data = config.reward, config.data
    files = {"train": data.train_files, "val": data.val_files}
    if reward.models or reward.by_source or not any(files.values()):
        return []
    sources = sorted({row.data_source for split in ("train", "val") if files[split] for row in iterate_rows(data, split=split)})
    unknown = [source or "(none)" for source in sources if source not in RULES]
    if unknown:
        raise ConfigError(
            f"reward.models is empty, and rows of data_source {', '.join(unknown[:5])} have no rule of their own (there is one for "
            f"{', '.join(RULES)}): name at least one reward, e.g. reward.models=[gsm8k]"
        )
    rules = {source: RULES[source] for source in sources}
    names = sorted(set(rules.values()))
    if len(names) == 1:
        reward.models = names
    else:
        reward.by_source = {source: {"models": [rule]} for source, rule in rules.items()}
    return [f"no reward is named: rows of {source} are scored by the rule {rule}" for source, rule in rules.items()]
