"""Import vLLM as an engine does."""

# pyright: basic
# vLLM is not installed everywhere.

from __future__ import annotations


def probe() -> dict[str, str]:
    """Return vLLM's version and the platform it was built for, "cpu" or "cuda"."""
    import vllm
    from vllm.platforms import current_platform

    # Engines are built from this class; importing it loads the kernels.
    assert callable(vllm.LLM)
    return {"version": vllm.__version__, "platform": current_platform.device_type}
