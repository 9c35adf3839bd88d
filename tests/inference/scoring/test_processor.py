"""What /proc/cpuinfo says of a processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.inference.processor import computes_bfloat16


@pytest.mark.parametrize(
    ("line", "has"),
    [
        ("flags\t\t: fpu sse2 avx2 fma", False),  # AMD EPYC Milan
        ("flags\t\t: fpu avx2 avx512f avx512_vnni", False),  # Intel Cascade Lake
        ("flags\t\t: fpu avx2 avx512f avx512_bf16", True),  # AMD EPYC Genoa
        ("flags\t\t: fpu avx2 amx_bf16 amx_tile", True),
        ("Features\t: fp asimd sve i8mm bf16", True),  # Arm Neoverse V1
        ("Features\t: fp asimd", False),
        ("bogomips\t: 4800", True),  # nothing is said
    ],
)
def test_instructions_of_a_processor(tmp_path: Path, line: str, has: bool) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor\t: 0\nmodel name\t: bf16 by name\n{line}\n", encoding="utf-8")
    assert computes_bfloat16(file) == has


def test_a_system_without_the_file_is_taken_as_able(tmp_path: Path) -> None:
    assert computes_bfloat16(tmp_path / "none")
