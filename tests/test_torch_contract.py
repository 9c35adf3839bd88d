"""scripts/torch_contract.py: what releases of torch lack is found without an import."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
import torch

from rmrl.inference.vllm.compat import Use
from tests.scripts import load_script

contract = load_script(Path(__file__).resolve().parent.parent / "scripts" / "torch_contract.py")


def test_the_installed_torch_has_all_that_is_used() -> None:
    installed = contract.Sources(Path(torch.__file__).parent.parent)
    assert contract.lacks(installed) == []


class Bytes(contract.RemoteFile):
    """A file of these bytes that counts its requests."""

    def __init__(self, content: bytes) -> None:
        super().__init__("nowhere")
        self.content = content
        self.asked: list[str] = []

    def _answer(self, wanted: str) -> tuple[bytes, str]:
        self.asked.append(wanted)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        return self.content[int(first) : int(last) + 1], f"{wanted}/{len(self.content)}"


def test_a_module_is_read_from_a_wheel_without_the_rest_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        wheel.writestr("torch/__init__.py", "from torch.inner import attend as attention\n")
        wheel.writestr("torch/inner.py", "def attend(q, *, scale): ...\n")
        wheel.writestr("torch/lib.so", bytes(2**18))
    remote = Bytes(packed.getvalue())
    monkeypatch.setattr(contract, "_BLOCK", 2**12)
    sources = contract.WheelSources(tmp_path, "1.0")
    sources._wheel = zipfile.ZipFile(remote)  # type: ignore[arg-type]
    assert contract.missing(Use("torch:attention", ("scale",)), sources) == []
    assert contract.missing(Use("torch:attention", ("window",)), sources) == [
        "torch:attention(window)"
    ]
    assert contract.missing(Use("torch:other"), sources) == ["torch:other: not there"]
    assert len(remote.asked) * 2**12 < 2**16  # the library was left where it is
    assert not (tmp_path / "torch" / "lib.so").exists()
    # A second look reads nothing: modules, and names that no module has, are in the folder.
    asked = len(remote.asked)
    again = contract.WheelSources(tmp_path, "1.0")
    assert contract.missing(Use("torch:attention", ("scale",)), again) == []
    assert len(remote.asked) == asked
