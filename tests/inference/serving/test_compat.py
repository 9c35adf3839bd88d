"""The installed vLLM is one that rmrl was written for: its names, arguments and members."""

import ast
import importlib.util
from pathlib import Path

import pytest
from packaging.version import Version

from rmrl.assemble.preflight import package_problem
from rmrl.errors import EngineLoadError
from rmrl.inference.vllm import compat
from rmrl.inference.vllm.rollout import VLLMRollout
from rmrl.inference.weights.sender import INIT_INFOS
from rmrl.registry import version_problem
from tests.engine_process import run_in_engine_process

PACKAGE = Path(compat.__file__).parents[2]


def missing_uses() -> list[str]:
    """Return what the installed vLLM lacks of compat.USES."""
    import dataclasses
    import inspect

    from rmrl.registry import load_attribute

    version = compat.installed_version()
    assert version is not None
    missing: list[str] = []
    for use in compat.USES:
        if not use.in_release(version):
            continue
        try:
            made = load_attribute(use.name)
        except (ImportError, AttributeError) as error:
            missing.append(f"{use.name}: {error}")
            continue
        known = set()
        if use.arguments:
            known = set(inspect.signature(made).parameters)
            if dataclasses.is_dataclass(made):
                known |= {field.name for field in dataclasses.fields(made)}
        missing += [f"{use.name}({name})" for name in use.arguments if name not in known]
        for member in (*use.members, *use.extended):
            name, arguments = compat.method_arguments(member)
            if not hasattr(made, name):
                missing.append(f"{use.name}.{name}")
            elif arguments:
                signature = inspect.signature(getattr(made, name)).parameters
                missing += [
                    f"{use.name}.{name}({each})" for each in arguments if each not in signature
                ]
    return missing


def test_the_installed_vllm_has_all_that_is_used() -> None:
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    assert run_in_engine_process(missing_uses) == []


def _imports(tree: ast.AST) -> set[str]:
    """Return module:attribute of each import from vLLM."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm":
            names |= {f"{node.module}:{alias.name}" for alias in node.names}
    return names


def test_every_import_from_vllm_is_listed() -> None:
    imported: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        imported |= _imports(ast.parse(path.read_text(encoding="utf-8")))
    listed = {use.name for use in compat.USES}
    assert imported | set(INIT_INFOS.values()) == listed


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The version that is taken for the installed one, to be set."""
    versions = ["0.32.0"]
    monkeypatch.setattr(compat, "installed_version", lambda: Version(versions[0]))
    compat._warned.clear()
    return versions


def test_an_older_vllm_is_refused_before_a_start(installed: list[str]) -> None:
    installed[0] = "0.23.1"
    problem = package_problem("rollout.name", "vllm", VLLMRollout, device="cpu")
    assert "vLLM 0.23.1 is installed, and rmrl needs 0.24 or newer: pip install -U" in problem
    with pytest.raises(EngineLoadError, match=r"needs 0\.24"):
        compat.refuse_version()


@pytest.mark.parametrize("version", ["0.24.0", "0.28.1", "0.32.4", "0.33.0"])
def test_versions_of_the_tested_range_are_taken(
    installed: list[str], version: str, caplog: pytest.LogCaptureFixture
) -> None:
    installed[0] = version
    assert version_problem(VLLMRollout) == ""
    assert not caplog.messages


def test_a_newer_vllm_is_taken_with_one_warning(
    installed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    installed[0] = "0.34.0"
    assert compat.version_problem() == ""
    assert compat.version_problem() == ""
    (message,) = caplog.messages
    assert "0.34.0 is newer than 0.33" in message
    assert 'pip install "vllm==0.33.*"' in message


def test_what_a_version_can(installed: list[str]) -> None:
    for version in ("0.25.1", "0.26.0", "0.27.1"):
        installed[0] = version
        assert not compat.transfers_weights()
    installed[0] = "0.28.0"
    assert compat.transfers_weights()
    assert not compat.offloads_graphs()
    installed[0] = "0.32.0"
    assert compat.offloads_graphs()


@pytest.mark.parametrize(
    ("version", "types", "value"),
    [
        ("0.32.0", (0, 0, 1, 1), 2),
        ("0.33.0", (0, 0, 1, 1), (2, 4)),
        ("0.33.0", (0, 1, 0), (1, 2)),  # padding
    ],
)
def test_a_pair_is_described_as_the_release_reads_it(
    installed: list[str], version: str, types: tuple[int, ...], value: object
) -> None:
    """vLLM 0.33 ends its worker at a lone number: "cannot unpack non-iterable int object"."""
    installed[0] = version
    assert compat.pair_argument(types) == {"compressed_token_type_ids": value}


def test_without_vllm_nothing_is_wrong_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "installed_version", lambda: None)
    assert compat.version_problem() == ""
    assert not compat.transfers_weights()


def test_pairs_with_token_types_are_refused_where_their_scores_are_untested(
    installed: list[str],
) -> None:
    compat.refuse_pairs("model")
    installed[0] = "0.24.0"
    with pytest.raises(EngineLoadError, match=r"pairs with token types.*use engine\.name=hf"):
        compat.refuse_pairs("model")
