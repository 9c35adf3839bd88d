"""Entries of `reward.models` -> one `RewardSpec` per reward."""
