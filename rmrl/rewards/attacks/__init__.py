"""What policies write to sway judges: a corpus of attacks, for tests and for measuring how often a
judge gives in."""

from rmrl.rewards.attacks.corpus import Attack, load_attacks, read_attacks

__all__ = ["Attack", "load_attacks", "read_attacks"]
