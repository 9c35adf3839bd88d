"""A task of Ray looks at a machine from inside the cluster."""

from __future__ import annotations

import pytest
import ray

from rmrl.cluster import device_survey
from rmrl.cluster.device_survey import find_devices
from rmrl.cluster.devices import Machine
from rmrl.errors import ConfigError


def test_a_task_of_ray_reports_a_machine_whose_gpus_are_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if Machine(gpus=device_survey._this_machine().gpus).gpus:
        pytest.skip("there is a GPU")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ray.init(address="local", num_cpus=1, num_gpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with pytest.raises(ConfigError, match=r"the Ray cluster at auto .*no NVIDIA driver"):
            find_devices("cuda", {"address": "auto"})
    finally:
        ray.shutdown()
