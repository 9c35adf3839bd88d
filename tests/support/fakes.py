"""Names under which a configuration asks for the fakes in this folder."""

from __future__ import annotations

REWARD_ENGINE = "tests.support.fake_reward_engine:FakeEngine"
"""`reward.engine.name`"""
ROLLOUT = "tests.support.fake_rollout:FakeRollout"
"""`actor_rollout_ref.rollout.name`"""
BACKEND = "tests.support.fake_backend:BACKEND"
"""`strategy` of the actor and the critic."""
