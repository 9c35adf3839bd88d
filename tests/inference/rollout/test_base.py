from pathlib import Path

import pytest

from rmrl.config.schema.rollout import RolloutConfig
from rmrl.errors import DataError, InfrastructureError
from rmrl.inference.rollout import ROLLOUT_ENGINES
from rmrl.inference.rollout_base import (
    RolloutEngineSettings,
    refuse_missing,
    refuse_overlong,
    sample_seed,
)
from rmrl.interfaces import RolloutEngine
from tests.support import fakes

DECIDED = {
    "path": "m",
    "tokenizer": None,
    "device": "cpu",
    "threads": 1,
    "max_model_len": 8,
    "trust_remote_code": False,
}


def test_settings_take_the_section_and_what_others_decide() -> None:
    config = RolloutConfig(
        name=fakes.ROLLOUT,
        dtype="float32",
        seed=4,
        engine_kwargs={fakes.ROLLOUT: {"text": "x"}, "vllm": {"block_size": 32}},
    )
    settings = RolloutEngineSettings.of(config, **DECIDED)
    assert (settings.dtype, settings.seed, settings.path, settings.max_model_len) == (
        "float32",
        4,
        "m",
        8,
    )
    assert settings.kwargs == {"text": "x"}
    assert RolloutEngineSettings.of(config, **DECIDED, seed=9).seed == 9


def test_no_engine_kwargs() -> None:
    assert (
        RolloutEngineSettings.of(RolloutConfig(engine_kwargs={"vllm": None}), **DECIDED).kwargs
        == {}
    )


@pytest.mark.parametrize("length", [0, 8, 9])
def test_prompts_that_do_not_fit(length: int) -> None:
    refuse_overlong([[1], [1] * 7], 8)
    with pytest.raises(DataError, match=f"prompt 1 of the call has {length} tokens.* takes 1 to 7"):
        refuse_overlong([[1], [1] * length], 8)


def test_weights_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    refuse_missing(str(tmp_path / "there"))
    with pytest.raises(InfrastructureError, match=r"nowhere', and there is no such file"):
        refuse_missing(str(tmp_path / "nowhere"))


def test_every_sample_has_its_own_seed() -> None:
    seeds = [sample_seed(100, p, s, samples=3) for p in range(2) for s in range(3)]
    assert seeds == [100, 101, 102, 103, 104, 105]
    assert sample_seed(None, 1, 1, samples=3) is None


@pytest.mark.parametrize("name", ROLLOUT_ENGINES)
def test_every_engine_is_a_rollout_engine(name: str) -> None:
    """Its class is imported without its packages and has the members of the protocol."""
    members = [member for member in vars(RolloutEngine) if not member.startswith("_")]
    assert set(members) >= {"start", "generate", "load_weights", "sleep", "wake"}
    for member in members:
        assert callable(getattr(ROLLOUT_ENGINES[name], member))
