"""Configurations of `rmrl serve` that cannot work, as sentences before anything starts."""

from __future__ import annotations

import pytest

from rmrl.errors import ConfigError, RmrlError
from tests.packages import hide
from tests.serve.conftest import Served

BAD = {
    "serve.host=0.0.0.0": "reachable from other machines, and no token is set",
    "serve.host=example.org": "reachable from other machines",
    "serve.token_env=UNSET_TOKEN": "UNSET_TOKEN: this environment variable is not set",
    "serve.port=70000": "give a port from 0 to 65535",
    "serve.max_rows=99999": "more than serve.max_queue_rows",
    "serve.max_body_mb=512": "more than serve.max_bodies_mb",
    "serve.wires=[nativ]": "did you mean 'native'",
    "serve.wires=[]": "serve.wires=[]",
    "serve.request_timeout_s=0": "must be greater than 0",
    "data.files=rows.jsonl": "data.files is about files",
    "reward.models=[lenght]": "did you mean 'length'",
    "columns=[told]": "give some of rendered, raw",
}


@pytest.mark.parametrize("override", BAD)
def test_what_cannot_work_is_a_sentence(served: Served, override: str) -> None:
    with pytest.raises(RmrlError) as error:
        served.checked(override)
    assert BAD[override] in str(error.value)
    assert error.value.exit_code == 2


def test_all_problems_come_at_once(served: Served) -> None:
    with pytest.raises(ConfigError) as error:
        served.checked("serve.host=0.0.0.0", "serve.port=-1", "reward.models=[lenght]")
    assert len(error.value.problems) >= 3


def test_a_token_instead_of_its_variable_is_not_repeated(served: Served) -> None:
    with pytest.raises(ConfigError) as error:
        served.checked("serve.token_env='sk-this.is.the.token'")
    assert "sk-this" not in str(error.value)


def test_a_token_lets_other_machines_in_and_is_not_printed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOD_TOKEN", "abc123")
    checked = served.checked("serve.host=0.0.0.0", "serve.token_env=GOOD_TOKEN")
    assert checked.token == b"abc123"
    assert "abc123" not in repr(checked)
    monkeypatch.setenv("GOOD_TOKEN", "two words")
    with pytest.raises(ConfigError, match="characters that a header cannot carry"):
        served.checked("serve.token_env=GOOD_TOKEN")


def test_missing_packages_are_named_with_the_extra(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "uvicorn")
    with pytest.raises(ConfigError, match=r"uvicorn.*not installed.*rmrl-toolkit\[serve\]"):
        served.checked()
