""""""

from tests.inference.serving.test_arguments import arguments


def test_the_installed_vllm_knows_every_argument() -> None:
    from vllm import EngineArgs

    assert arguments(device="cuda").keys() <= EngineArgs.__dataclass_fields__.keys()
    assert arguments().keys() <= EngineArgs.__dataclass_fields__.keys()
