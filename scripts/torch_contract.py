"""Compare what rmrl uses of torch beyond its everyday interface with the sources of several releases,
without importing them and without fetching a wheel.

    python scripts/torch_contract.py                       the releases of RELEASES
    python scripts/torch_contract.py --releases 2.15.0     others

A wheel of torch has half a gigabyte: its list of files and the few modules that are looked at are read
from the index by ranges of bytes, into a folder of the cache. Status 1: a release lacks something.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import sys
import urllib.request
import zipfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from packaging.utils import parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rmrl.inference.vllm.compat import Use  # noqa: E402 (the checkout is found by the line above)
from scripts.vllm_contract import CACHE, Sources, Unavailable, missing  # noqa: E402

RELEASES = ("2.11.0", "2.13.0", "2.14.0")
"""Those that the releases of vLLM in docker/constraints ask for."""
INDEX = "https://pypi.org/simple/torch/"
_FSDP = "torch.distributed.fsdp"
_DCP = "torch.distributed.checkpoint"
_TIMEOUT_S = 60
_BLOCK = 2**20
"""Least bytes of a request: the list of files is read in small pieces."""

USES = (
    Use("torch.nn.attention.varlen:varlen_attn", ("scale", "window_size")),
    Use(
        f"{_FSDP}:fully_shard",
        ("mesh", "mp_policy", "offload_policy", "reshard_after_forward"),
    ),
    Use(f"{_FSDP}:FSDPModule", members=("reshard",)),
    Use(f"{_FSDP}:MixedPrecisionPolicy", ("param_dtype", "reduce_dtype")),
    Use(f"{_FSDP}:CPUOffloadPolicy"),
    Use(f"{_FSDP}._runtime_utils:_lazy_init"),
    Use(f"{_FSDP}._runtime_utils:_reshard"),
    Use(f"{_FSDP}.wrap:CustomPolicy"),
    Use("torch.distributed.device_mesh:init_device_mesh", ("mesh_dim_names",)),
    Use("torch.distributed.tensor:distribute_tensor", ("src_data_rank",)),
    Use("torch.distributed.tensor:DTensor", members=("full_tensor", "to_local")),
    Use("torch.nn.utils:get_total_norm", ("tensors",)),
    Use("torch.nn.utils:clip_grads_with_norm_", ("parameters", "max_norm", "total_norm")),
    Use(f"{_DCP}.state_dict:get_model_state_dict", ("model",)),
    Use(f"{_DCP}.state_dict:set_model_state_dict", ("model", "model_state_dict")),
    Use(f"{_DCP}.default_planner:DefaultLoadPlanner"),
    Use(f"{_DCP}.default_planner:DefaultSavePlanner"),
    Use(f"{_DCP}.planner_helpers:create_read_items_for_chunk_list"),
    Use(f"{_DCP}.storage:WriteResult"),
    Use("torch.utils.checkpoint:checkpoint", ("use_reentrant",)),
    Use(
        "torch.distributed._tools.fsdp2_mem_tracker:FSDPMemTracker",
        members=("get_tracker_snapshot", "reset_mod_stats"),
    ),
)
"""What rmrl takes of torch. `varlen_attn` has `enable_gqa` in some releases, and rmrl repeats the
keys in the others."""


class RemoteFile(io.RawIOBase):
    """A file on a server that answers ranges of bytes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._at = 0
        self._blocks: dict[int, bytes] = {}

    @cached_property
    def _size(self) -> int:
        return int(self._answer("bytes=0-0")[1].rpartition("/")[2])

    def _answer(self, wanted: str) -> tuple[bytes, str]:
        request = urllib.request.Request(self._url, headers={"Range": wanted})
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            if answer.status != 206:
                raise Unavailable(f"{self._url} does not answer ranges of bytes")
            return answer.read(), answer.headers["Content-Range"]

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        start, self._at = self._at, max(end, self._at)
        parts: list[bytes] = []
        for number in range(start // _BLOCK, -(-end // _BLOCK)):
            first = number * _BLOCK
            if number not in self._blocks:
                last = min(self._size, first + _BLOCK) - 1
                self._blocks[number] = self._answer(f"bytes={first}-{last}")[0]
            parts.append(self._blocks[number][max(0, start - first) : end - first])
        return b"".join(parts)


class WheelSources(Sources):
    """The definitions in a wheel, whose modules are fetched when they are looked at."""

    def __init__(self, folder: Path, release: str) -> None:
        super().__init__(folder)
        self._release = release

    @cached_property
    def _wheel(self) -> zipfile.ZipFile:
        return zipfile.ZipFile(RemoteFile(wheel_of(self._release)))  # type: ignore[arg-type]

    def _tree(self, module: str) -> ast.Module | None:
        place = module.replace(".", "/")
        known = self.folder / f"{place}.looked_up"
        if not known.exists():
            for name in {f"{place}.py", f"{place}/__init__.py"} & set(self._wheel.namelist()):
                self._wheel.extract(name, self.folder)
            known.parent.mkdir(parents=True, exist_ok=True)
            known.touch()
        return super()._tree(module)


def wheel_of(release: str) -> str:
    """Return the address of a release's wheel for Linux. Raises Unavailable."""
    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    request = urllib.request.Request(INDEX, headers=accept)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            files = json.load(answer)["files"]
    except (OSError, ValueError) as error:
        raise Unavailable(f"the index gives no list of wheels: {error}") from error
    for file in files:
        name = file["filename"]
        for_linux = name.endswith("x86_64.whl") and "manylinux" in name
        if for_linux and parse_wheel_filename(name)[1] == Version(release):
            return file["url"]
    raise Unavailable(f"the index has no wheel of torch {release} for Linux")


def lacks(sources: Sources) -> list[str]:
    """Return what the sources lack."""
    return [line for use in USES for line in missing(use, sources)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--releases", nargs="+", default=RELEASES, help="versions of torch")
    cache = CACHE.with_name("torch-sources")
    parser.add_argument("--cache", type=Path, default=cache, help="folder of fetched modules")
    args = parser.parse_args(argv)
    complete = True
    for release in args.releases:
        try:
            found = lacks(WheelSources(args.cache / release, release))
        except (Unavailable, OSError) as reason:
            print(f"skipped  torch {release}: {reason}", flush=True)
            continue
        complete = complete and not found
        state = "lacks   " if found else "ok      "
        print(f"{state} torch {release}: {len(USES)} uses", *found, sep="\n           ", flush=True)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
