"""Digests equal those that earlier versions stored: resumed jobs, caches, calibrations and
checkpoints are found again."""

from __future__ import annotations

from rmrl.config.identity import fingerprint
from rmrl.digests import canonical_json, digest
from rmrl.inference.reward_engine_base import GenerateRequest
from rmrl.rewards.cache.keys import request_key, scorer_key
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.types import Sampling

VALUE = {"b": [1, 2.5, None, True], "a": {"é": "\ud800 text", "path": "x/y"}}


def test_the_text_of_a_value_is_ascii_with_its_keys_in_order() -> None:
    assert canonical_json({"b": [1, 2], "a": "é"}) == b'{"a": "\\u00e9", "b": [1, 2]}'
    assert canonical_json({"b": {1}}, default=repr, compact=True) == b'{"b":"{1}"}'


def test_digests_are_those_of_version_0_1() -> None:
    assert fingerprint(VALUE) == "87fa91a4e2a3f792"
    whole = "87fa91a4e2a3f792ae31b68735b9e3454a9eb61a9a69ce0947e1086e5e466a1e"
    assert digest(VALUE) == whole  # of a checkpoint's manifest
    of_a_calibration = "26c8019c03e03684462212516bc619369169eb4181817fc6bca9b880770a5f4c"
    assert digest({**VALUE, "odd": {1}}, default=repr) == of_a_calibration


def test_keys_of_a_cache_are_those_of_version_0_1() -> None:
    headers = {"X-Team": "a", "Authorization": "b"}
    server = HTTPSpec(url="http://judge:8000/v1/", wire="openai", model="m", headers=headers)
    scorer = scorer_key(server, code_hash="c")
    assert scorer == "ce92aa0ab3feba0b3773b319c9418d565c73aafc9f0ed351edd8ba6d04c05c59"
    request = GenerateRequest(tuple(range(20)), Sampling(max_tokens=8), text="é")
    stored = "0fee60974e61c5903f76d6d8cd436f196e18345c0f5d2ab101fc76dd40cd3d59"
    assert request_key(scorer, "generate", request).hex() == stored
