"""scripts/vllm_contract.py: what sources of vLLM lack is found without an import."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from rmrl.inference.vllm import compat
from rmrl.inference.vllm.compat import Use
from tests.scripts import load_script

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "results" / "vllm_contract.json"
BASE = """
    from abc import ABC, abstractmethod
    from functools import cached_property

    class WeightSource(ABC):
        def __init_subclass__(cls, **kwargs):
            metadata = cls.__dict__.get("metadata")
            if metadata is not None and not isinstance(metadata, cached_property):
                raise TypeError("metadata must be a cached_property")

        @property
        @abstractmethod
        def metadata(self): ...

        @abstractmethod
        def iter_full(self): ...
"""
FILES = {
    "__init__": """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from .entrypoints.llm import LLM
        ATTRIBUTES = {"LLM": ".entrypoints.llm:LLM"}
    """,
    "entrypoints/__init__": "",
    "entrypoints/llm": """
        from vllm.offline import OfflineMixin

        class LLM(OfflineMixin):
            def sleep(self, level=1): ...
    """,
    "offline": """
        class OfflineMixin:
            def encode(self, prompts, *, pooling_task=None): ...
    """,
    "arguments": """
        from dataclasses import dataclass

        @dataclass
        class EngineArgs:
            model: str
            seed: int = 0

        def make(*, place): ...
    """,
    "struct": """
        import msgspec

        class Params(msgspec.Struct, omit_defaults=True):
            n: int = 1
    """,
    "platform": """
        class Platform:
            device_type: str
        if True:
            current: Platform
        else:
            other = 1
    """,
    "base": BASE,
}


@pytest.fixture(scope="module")
def contract() -> ModuleType:
    return load_script(ROOT / "scripts" / "vllm_contract.py")


@pytest.fixture
def sources(contract: ModuleType, tmp_path: Path) -> SimpleNamespace:
    """Sources of a small package that is named vllm."""
    import textwrap

    for name, text in FILES.items():
        path = tmp_path / "vllm" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return contract.Sources(tmp_path)


@pytest.mark.parametrize(
    "use",
    [
        Use("vllm:LLM", members=("sleep(level)", "encode(pooling_task)")),
        Use("vllm.arguments:EngineArgs", ("model", "seed")),
        Use("vllm.arguments:make", ("place",)),
        Use("vllm.struct:Params", ("n",)),
        Use("vllm.platform:current", members=("device_type",)),
        Use("vllm:entrypoints"),
        Use(
            "vllm.base:WeightSource",
            extended={"metadata": "cached_property", "iter_full": "method"},
        ),
    ],
    ids=lambda use: use.name,
)
def test_what_is_there_is_found(contract: ModuleType, sources: SimpleNamespace, use: Use) -> None:
    """Through lazy imports, bases in other files, fields, annotated variables and submodules."""
    assert contract.missing(use, sources) == []


@pytest.mark.parametrize(
    ("use", "lacks"),
    [
        (Use("vllm:Gone"), ["vllm:Gone: not there"]),
        (Use("vllm.gone:LLM"), ["vllm.gone:LLM: not there"]),
        (Use("vllm:LLM", members=("wake_up",)), ["vllm:LLM.wake_up"]),
        (Use("vllm:LLM", members=("sleep(tags)",)), ["vllm:LLM.sleep(tags)"]),
        (Use("vllm.arguments:EngineArgs", ("path",)), ["vllm.arguments:EngineArgs(path)"]),
        (Use("vllm.arguments:make", ("here",)), ["vllm.arguments:make(here)"]),
        (
            Use("vllm.base:WeightSource", extended={"metadata": "cached_property"}),
            ["vllm.base:WeightSource.iter_full: abstract, and rmrl does not define it"],
        ),
        (
            Use("vllm.base:WeightSource", extended={"metadata": "method", "__iter__": "method"}),
            [
                "vllm.base:WeightSource.metadata: a value there, a method in rmrl",
                "vllm.base:WeightSource.__iter__: nothing there to extend",
                "vllm.base:WeightSource.iter_full: abstract, and rmrl does not define it",
                "vllm.base:WeightSource.metadata: __init_subclass__ asks for a cached_property",
            ],
        ),
        (
            Use("vllm.base:WeightSource", extended={"metadata": "property", "iter_full": "method"}),
            [
                "vllm.base:WeightSource.metadata: __init_subclass__ asks for another form than"
                " property"
            ],
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Use) else "",
)
def test_what_a_release_lacks_is_named(
    contract: ModuleType, sources: SimpleNamespace, use: Use, lacks: list[str]
) -> None:
    assert contract.missing(use, sources) == lacks


def test_a_use_holds_for_a_range_of_releases() -> None:
    use = Use("vllm:LLM", since=Version("0.28"), until=Version("0.33"))
    releases = ("0.27.1", "0.28.0", "0.32.4", "0.33.0")
    assert [use.in_release(Version(each)) for each in releases] == [False, True, True, False]
    assert compat.method_arguments("encode(a, b)") == ("encode", ("a", "b"))
    assert compat.method_arguments("step") == ("step", ())


def test_the_installed_sources_have_all_that_is_used(contract: ModuleType) -> None:
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        pytest.skip("vLLM is not installed")
    version = compat.installed_version()
    assert contract.compare(Path(spec.origin).parents[1], version)["missing"] == []


def test_releases_that_cannot_be_had_are_skipped_with_the_reason(
    contract: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = tmp_path / "found.json"
    command = ["--cache", str(tmp_path), "--record", str(record), "--releases", "0.24.0"]
    monkeypatch.setattr(contract, "LEAST_FREE_BYTES", 2**62)
    assert contract.main(command) == 0
    assert "skipped  vLLM 0.24.0" in capsys.readouterr().out
    monkeypatch.setattr(contract, "LEAST_FREE_BYTES", 0)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    assert contract.main([*command, "--newest"]) == 0
    assert "skipped: ERROR: " in capsys.readouterr().out
    assert json.loads(record.read_text(encoding="utf-8")) == {}


def test_a_release_that_lacks_something_ends_with_status_1(
    contract: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "0.24.0" / "vllm").mkdir(parents=True)
    (tmp_path / "0.24.0" / "vllm" / "__init__.py").write_text("", encoding="utf-8")
    assert contract.main(["--cache", str(tmp_path), "--releases", "0.24.0"]) == 1
    assert "vllm:EngineArgs: not there" in capsys.readouterr().out


def test_the_record_covers_the_bounds_of_the_package() -> None:
    """The oldest and the newest release that `pip install` may take have been compared."""
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    assert all(each["missing"] == [] for each in recorded.values())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (bound,) = [
        Requirement(line)
        for line in project["optional-dependencies"]["cuda"]
        if line.startswith("vllm")
    ]
    releases = sorted(map(Version, recorded))
    assert releases[0].release[:2] == compat.OLDEST.release
    assert releases[-1].release[:2] == compat.NEWEST.release
    assert all(release in bound.specifier for release in releases)
    assert f"{compat.NEWEST.major}.{compat.NEWEST.minor + 1}" not in bound.specifier


def test_the_table_of_releases_says_what_was_recorded() -> None:
    """docs/rollout.md has a row for each release, with the torch and transformers it asks for."""
    page = (ROOT / "docs" / "rollout.md").read_text(encoding="utf-8")
    for release, found in json.loads(RECORD.read_text(encoding="utf-8")).items():
        minor = release.rpartition(".")[0]
        row = f"| {minor} | {found['torch'].strip('=')} | `{found['transformers']}` |"
        assert row in page, row
