"""Import vLLM as an engine does."""

# pyright: basic
# vLLM is not installed everywhere.

from __future__ import annotations


def probe() -> dict[str, str]:
    """Return vLLM's version, the platform it was built for, "cpu" or "cuda", and why its weight
    transfer does not take rmrl's weights, "" where it does or the release has none."""
    import vllm
    from vllm.platforms import current_platform

    from rmrl.inference.vllm import compat
    from rmrl.inference.weights.sender import source_problem

    # Engines are built from this class; importing it loads the kernels.
    assert callable(vllm.LLM)
    return {
        "version": vllm.__version__,
        "platform": current_platform.device_type,
        "transfer": source_problem() if compat.transfers_weights() else "",
    }
