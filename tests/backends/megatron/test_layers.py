"""TransformerEngine's layers in place of megatron-core's own. The library needs a GPU: here its
modules are fakes with its parameters' names and plain torch inside, so that loading, the layout of
the layers, gradients and checkpoints are tested, and no kernel is."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rmrl.errors import ConfigError
from tests.backends.megatron.tiny import make_settings


def test_the_library_is_used_where_it_is_installed_and_the_run_is_on_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from rmrl.backends.megatron.layers import fused_parts

    plain = make_settings(tmp_path)
    assert fused_parts(plain) is None
    wanted = make_settings(tmp_path, transformer_engine=True)
    with pytest.raises(ConfigError, match=r"transformer_engine=True: it is not installed"):
        fused_parts(wanted)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    with pytest.raises(ConfigError, match="kernels for NVIDIA GPUs only"):
        fused_parts(wanted)
    assert fused_parts(plain) is None
    on_cuda = dataclasses.replace(plain, device="cuda")
    # megatron-core has these names whether or not the library is there.
    engine = importlib.import_module("megatron.core.extensions.transformer_engine")
    monkeypatch.setattr(engine, "HAVE_TE", True)
    caplog.set_level("INFO", "rmrl")
    parts = fused_parts(on_cuda)
    assert parts is not None
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "layers of TransformerEngine" in caplog.text
    assert parts.norm_and_column is engine.TELayerNormColumnParallelLinear
    assert parts.row is engine.TERowParallelLinear
    off = make_settings(tmp_path, transformer_engine=False)
    assert fused_parts(dataclasses.replace(off, device="cuda")) is None


@pytest.mark.parametrize("error", ["OSError('undefined symbol: abc')", "ImportError('no abc')"])
def test_an_install_that_cannot_be_imported_is_a_warning_and_the_plain_layers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: str,
) -> None:
    """A package of that name on the path, whose import fails."""
    from rmrl.backends.megatron.layers import fused_parts

    engine = importlib.import_module("megatron.core.extensions.transformer_engine")
    assert engine.HAVE_TE is False  # imported while there was none, as after a failed import
    package = tmp_path / "path" / "transformer_engine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"raise {error}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(package.parent)
    on_cuda = dataclasses.replace(make_settings(tmp_path), device="cuda")
    assert fused_parts(on_cuda) is None
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    name, _, message = error.partition("('")
    sentence = f"installed and cannot be used ({name}: {message.removesuffix(chr(39) + ')')})"
    assert sentence in record.message
    wanted = make_settings(tmp_path, transformer_engine=True)
    with pytest.raises(ConfigError, match="transformer_engine=True: it is installed and cannot"):
        fused_parts(dataclasses.replace(wanted, device="cuda"))


def test_a_kernel_library_that_does_not_load_does_not_end_the_import_of_megatron_core(
    tmp_path: Path,
) -> None:
    """megatron-core's own import ends with any error of TransformerEngine but an ImportError."""
    package = tmp_path / "path" / "transformer_engine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise OSError('undefined symbol: abc')\n")
    code = (
        "import dataclasses, pathlib\n"
        "from rmrl.backends.megatron.layers import fused_parts\n"
        "from tests.backends.megatron.tiny import make_settings\n"
        f"plain = make_settings(pathlib.Path({str(tmp_path)!r}))\n"
        "print(fused_parts(plain), fused_parts(dataclasses.replace(plain, device='cuda')))\n"
    )
    root = str(Path(__file__).resolve().parents[3])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([root, str(package.parent)])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["None", "None"]
    # on CUDA alone, and once
    assert done.stderr.count("cannot be used (OSError: undefined symbol: abc)") == 1


def test_the_fused_activation_has_the_gradients_of_the_plain_one(tmp_path: Path) -> None:
    """SwiGLU of megatron-core's fusion against torch's autograd, in float32."""
    from rmrl.backends.megatron import core  # noqa: F401  (adapts the import of megatron-core)
    from rmrl.backends.megatron.cpu import adapted

    with adapted():
        from megatron.core.fusions.fused_bias_swiglu import bias_swiglu_impl

        torch.manual_seed(0)
        x = torch.randn(5, 3, 8, requires_grad=True)
        upstream = torch.randn(5, 3, 4)
        (bias_swiglu_impl(x, None) * upstream).sum().backward()
    fused = x.grad
    y = x.detach().clone().requires_grad_()
    gate, up = y.chunk(2, dim=-1)
    (torch.nn.functional.silu(gate) * up * upstream).sum().backward()
    torch.testing.assert_close(fused, y.grad, rtol=1e-5, atol=1e-6)
