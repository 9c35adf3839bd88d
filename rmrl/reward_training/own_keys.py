"""Configuration keys in errors, named as `rmrl train-rm` has them.

Backends, models and run folders serve the policy and its critic, too, and their errors name those
keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rmrl.errors import ConfigError, RmrlError

_OWN = {
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": "trainer.max_tokens_per_gpu",
    "actor_rollout_ref.actor.grad_clip": "trainer.grad_clip",
    "critic.ppo_max_token_len_per_gpu": "trainer.max_tokens_per_gpu",
    "critic.grad_clip": "trainer.grad_clip",
    "actor_rollout_ref.model.": "model.",
    "critic.model.": "model.",
    "actor_rollout_ref.actor.": "",
    "critic.": "",
    "trainer.max_actor_ckpt_to_keep": "trainer.max_ckpt_to_keep",
    "trainer.experiment_name or trainer.default_local_dir": "out",
    "trainer.experiment_name": "out",
    "trainer.default_local_dir": "out",
}
"""Beginning of a key -> its beginning in train-rm. The first that fits counts."""
_FOREIGN = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, _OWN))})\b")


@contextmanager
def own_keys() -> Iterator[None]:
    """Rename the keys in rmrl's errors that leave the block."""
    try:
        yield
    except RmrlError as error:
        error.args = tuple(map(_renamed, error.args))
        if isinstance(error, ConfigError):
            error.problems = list(map(_renamed, error.problems))
        raise


def _renamed(text: object) -> Any:
    if not isinstance(text, str):
        return text
    return _FOREIGN.sub(lambda found: _OWN[found[1]], text)
