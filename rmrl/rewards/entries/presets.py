"""From `preset:NAME` in the configuration to a reward's entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError
from rmrl.rewards.catalogue.find import PREFIX, preset_of
from rmrl.rewards.dropins.dropin import DropIn, load_dropin


def name_presets(config: RewardConfig) -> None:
    """Replace each `preset:NAME` in reward.models, reward.by_source and ensemble members (`of`) by
    NAME, in place, and name the preset in `reward.specs.NAME`. The reward is called NAME from here
    on.

    Raises ConfigError where reward.models has NAME as well, since it would be named twice, and for
    a section of reward.specs with the prefix.
    """
    specs = dict(config.specs)
    for name in specs:
        if name.startswith(PREFIX):
            short = name.removeprefix(PREFIX)
            raise ConfigError(
                f"reward.specs has the section '{name}': '{PREFIX}' stands in reward.models alone;"
                f" write reward.specs.{short}"
            )

    def named(models: Any) -> Any:
        if not isinstance(models, list | tuple):
            return models
        names: list[Any] = []
        for model in models:
            name = model
            if isinstance(model, str) and model.startswith(PREFIX):
                name = model.removeprefix(PREFIX)
                entries = specs.get(name) or {}
                if isinstance(entries, Mapping):
                    specs[name] = {"preset": name, **entries}
            names.append(name)
        return names

    models = named(config.models)
    for name in models:
        if models.count(name) > 1 and f"{PREFIX}{name}" in config.models:
            raise ConfigError(
                f"reward.models has {PREFIX}{name} and {name}, which is the preset's own name: give"
                f" one of them another, e.g. reward.models=[mine] reward.specs.mine.preset={name}"
            )
    config.models = models
    tables: dict[str, Any] = {}
    for source, entry in config.by_source.items():
        tables[source] = entry
        if isinstance(entry, Mapping) and "models" in entry:
            tables[source] = {**entry, "models": named(entry["models"])}
    for name, section in list(specs.items()):
        if isinstance(section, Mapping) and "of" in section:
            members = named(section["of"])
            specs[name] = {**section, "of": members}
    config.by_source = tables
    config.specs = specs


def preset_entries(
    name: str, section: Mapping[str, Any], *, trust_remote_code: bool
) -> tuple[DropIn | None, dict[str, Any]]:
    """Return the drop-in for the section's preset (None where it has none) and the entries: the
    preset's own, each overridden by the section's.

    Raises ConfigError for an unknown preset, a preset whose code is not trusted, and a `function`
    beside the preset.
    """
    preset = preset_of(str(section["preset"]))
    if section.get("function"):
        raise ConfigError(
            f"reward.specs.{name}.preset and reward.specs.{name}.function are both given: a preset"
            " has its own prompt and reading; leave one of them out"
        )
    if preset.card.remote_code and not trust_remote_code:
        raise ConfigError(
            f"reward '{name}': the head of preset '{preset.name}' is code of the checkpoint's own,"
            f" {preset.path}; read it and, if you trust it, type trainer.trust_remote_code=true (in"
            " training actor_rollout_ref.model.trust_remote_code=true)"
        )
    dropin = load_dropin(preset.file, name) if preset.is_dropin else None
    own = {key: value for key, value in section.items() if key != "preset"}
    defaults = dict(preset.spec)
    if not (own.get("server") or own.get("wire")):
        defaults["path"] = preset.path
    return dropin, with_defaults(defaults, own)


def with_defaults(defaults: Mapping[str, Any], section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section's entries over `defaults`. Setting one entry in sampling or engine keeps
    the section's other defaults there."""
    entries = {**defaults, **section}
    for key in ("sampling", "engine"):
        shared = defaults.get(key)
        if isinstance(shared, Mapping) and isinstance(entries[key], Mapping):
            entries[key] = {**shared, **entries[key]}
    return entries
