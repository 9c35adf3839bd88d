"""The shape of the code base, as one table of rules per question. A failure names the file, the
line and the rule."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "rmrl"

LAYERS: tuple[tuple[str, ...], ...] = (
    # Top to bottom. A part may import the layers below its own, and itself; never its own layer's
    # other parts, never upwards.
    (
        "main_ppo",
        "main_rm",
        "main_score",
        "main_serve",
        "main_eval",
        "main_calibrate",
        "main_compare",
        "main_check",
        "main_audit",
        "main_doctor",
        "main_show",
        "main_report",
        "main_cache",
        "main_export",
        "main_migrate",
    ),
    ("cli",),
    ("commands",),
    ("exit",),
    ("reward_training", "audit"),
    ("report", "evaluation", "doctor", "serve", "adapters"),
    ("api",),
    ("trainer", "offline"),
    ("environments",),
    ("assemble",),
    ("rewards", "backends", "cluster", "telemetry"),
    ("inference",),
    ("algorithms", "data", "models"),
    ("tokenizer",),
    ("config",),
    ("interfaces",),
    ("types",),
    (
        "registry",
        "files",
        "clock",
        "heartbeat",
        "signals",
        "together",
        "digests",
        "ports",
        "logs",
        "columns",
        "thinking",
        "ragged",
        "arrays",
        "turns",
        "startup",
        "garbage",
    ),
    ("errors", "interrupt"),
)

BEHIND_THE_API = ("assemble", "commands", "inference", "offline", "rewards")
USERS_OF_THE_API = ("adapters", "evaluation", "report", "serve")
"""They import the parts behind it from `rmrl.api` alone."""

ROOMS_OF_REWARDS: tuple[tuple[str, ...], ...] = (
    # As LAYERS, for the folders and files of rmrl/rewards; what only types import counts too.
    ("session", "entries", "attacks"),
    ("calibration", "catalogue", "combine", "residency"),
    ("kinds",),  # the table and its listing
    ("kinds/rubric", "kinds/code"),
    ("kinds/generative", "kinds/group", "kinds/critique", "kinds/similarity", "kinds/remote"),
    ("kinds/judge", "kinds/teacher"),
    ("kinds/bradley_terry", "kinds/process", "kinds/rule", "kinds/ensemble", "kinds/environment"),
    ("kinds/kind",),
    ("kinds/shared",),
    ("transforms", "cache"),
    ("specs",),
    ("answers", "dropins", "judging", "reads", "remote", "response_facts"),
)

WHO_MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # Library -> the only places under rmrl/ that may import it; a folder ends in "/".
    "ray": ("cluster/",),
    "vllm": ("inference/vllm/", "inference/weights/sender.py"),
    "megatron": ("backends/megatron/",),
    "hydra": ("config/load.py", "config/overrides.py"),
    "omegaconf": ("config/load.py", "config/typed.py", "commands/export.py"),
    "fastapi": ("serve/",),
    "starlette": ("serve/",),
    "uvicorn": ("serve/", "environments/endpoint.py"),
    "prometheus_client": ("serve/",),
}

FORBIDDEN_CALLS: dict[str, str] = {
    "pickle.load": "runs whatever the file says; keep tensors in safetensors, settings in JSON",
    "pickle.loads": "runs whatever the bytes say; keep tensors in safetensors, settings in JSON",
    "torch.load": "unpickles; use safetensors",
    "yaml.unsafe_load": "constructs arbitrary objects; use yaml.safe_load",
    "yaml.load": "constructs arbitrary objects; use yaml.safe_load",
    "hydra.utils.instantiate": "calls whatever a configuration names; use a Registry",
    "eval": "runs text as code; parse it",
    "exec": "runs text as code; import it",
}

ALLOWED_CALLS: dict[tuple[str, str], str] = {
    # (file, call) -> why it is safe there.
    (
        "rewards/dropins/dropin.py",
        "exec",
    ): "loads the user's own reward function, from the text that was hashed",
    (
        "rewards/dropins/dropin.py",
        "pickle.loads",
    ): "reads the copy that given_function.py makes in the same program; no file holds one",
    (
        "rewards/kinds/code/inside/candidate.py",
        "exec",
    ): "part of the program inside the sandbox; nothing imports it",
    (
        "rewards/kinds/code/inside/tester.py",
        "exec",
    ): "part of the program inside the sandbox; nothing imports it",
    (
        "rewards/kinds/rule/worker.py",
        "pickle.loads",
    ): "reads the socket pair inherited from its own parent process",
}

LIGHT_MODULES = (
    "rmrl",
    "rmrl.errors",
    "rmrl.registry",
    "rmrl.types",
    "rmrl.config",
    "rmrl.config.schema",
)
HEAVY_LIBRARIES = ("torch", "ray", "vllm", "transformers")

MAX_FOLDERS_OF_A_NAME = 3
OF_A_PROTOCOL = {"reward": "rewards/kinds/", "rollout": "inference/", "reward_engine": "inference/"}
"""Name of a file -> the room in which every part has a file of that name."""
OF_OTHER_PROJECTS = {
    "calculate_score",
    "remote_rm_url",
    "return_tokens_as_token_ids",
    "openrlhf/utils/agent.py",
    "trainer/ppo_utils/samples_generator.py",
    "legacy/rubrics/rubric.py",
    "verifiers/rubrics/rubric.py",
    "verifiers/v1/task.py",
    "verifiers/v1/trace.py",
    "verl/trainer/ppo/reward.py",
}
"""Names in docstrings that are explained by the project they stand for."""

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60


@dataclass(frozen=True, slots=True)
class Module:
    """One parsed file of the package."""

    path: Path
    tree: ast.Module

    @property
    def inside(self) -> str:
        """Path relative to rmrl/, with forward slashes."""
        return self.path.relative_to(PACKAGE).as_posix()

    @property
    def part(self) -> str:
        """The layer entry it belongs to: its first folder, or the name of a top-level file."""
        return self.inside.split("/")[0].removesuffix(".py")

    def at(self, node: ast.AST) -> str:
        """file:line of a node, for messages."""
        return f"rmrl/{self.inside}:{getattr(node, 'lineno', 0)}"


@cache
def modules() -> tuple[Module, ...]:
    return tuple(
        Module(path, ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(PACKAGE.rglob("*.py"))
    )


def is_typing_only(node: ast.If) -> bool:
    return ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def walk_at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Like ast.walk, without the bodies of `if TYPE_CHECKING:`, which never run."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and is_typing_only(child):
            for other in child.orelse:
                yield other
                yield from walk_at_run_time(other)
            continue
        yield child
        yield from walk_at_run_time(child)


def imports(module: Module, *, typing_too: bool = False) -> Iterator[tuple[ast.AST, str]]:
    """(node, absolute dotted name) of every import that runs, the ones inside functions
    included; with `typing_too` also of those that only types need."""
    folder = ("rmrl", *module.path.relative_to(PACKAGE).parts[:-1])
    nodes = ast.walk(module.tree) if typing_too else walk_at_run_time(module.tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(folder[: len(folder) - node.level + 1]) if node.level else ""
            origin = ".".join(piece for piece in (base, node.module) if piece)
            for alias in node.names:
                yield node, f"{origin}.{alias.name}"


def layer_of(part: str) -> int | None:
    return next((number for number, parts in enumerate(LAYERS) if part in parts), None)


def test_every_part_has_a_layer() -> None:
    unknown = {
        m.part
        for m in modules()
        if layer_of(m.part) is None and m.inside != "__init__.py" and m.part != "__main__"
    }
    assert not unknown, f"add {sorted(unknown)} to LAYERS, or move the code to where it belongs"


def test_every_name_of_a_layer_exists() -> None:
    missing = [
        part
        for parts in LAYERS
        for part in parts
        if not (PACKAGE / part).is_dir() and not (PACKAGE / f"{part}.py").is_file()
    ]
    assert not missing, f"take {missing} out of LAYERS until they are there"


def test_no_name_of_a_file_stands_in_more_than_three_folders() -> None:
    files: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules():
        name = module.path.stem
        if name != "__init__" and not module.inside.startswith(OF_A_PROTOCOL.get(name, "/")):
            files[name].append(module.inside)
    crowded = {name: each for name, each in files.items() if len(each) > MAX_FOLDERS_OF_A_NAME}
    assert not crowded, "name these files by what a user would say"


def docstrings(module: Module) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, ast.get_docstring(node) or ""


@cache
def words_of_the_code() -> set[str]:
    """Names, texts that are no docstrings, and names of files."""
    words: set[str] = set()
    for module in modules():
        words |= set(module.path.with_suffix("").relative_to(PACKAGE).parts)
        texts: set[ast.AST] = {
            node.value for node in ast.walk(module.tree) if isinstance(node, ast.Expr)
        }
        for node in set(ast.walk(module.tree)) - texts:
            for field in ("id", "attr", "arg", "name", "module", "asname", "value"):
                text = getattr(node, field, None)
                if isinstance(text, bytes):
                    text = text.decode("latin-1")
                if isinstance(text, str):
                    words |= set(re.findall(r"\w+", text))
    return words


def is_there(name: str, module: Module) -> bool:
    """Whether there is a file of the package, a module, or an attribute of one of that name; of
    other words with a "_" whether they stand in the code."""
    if name.endswith(".py"):
        return any(PACKAGE.parent.rglob(name)) or any(module.path.parent.rglob(name))
    pieces = name.split(".")
    if pieces[0] != "rmrl" or len(pieces) == 1:
        return not re.fullmatch(r"[a-z]\w*_\w+", name) or name in words_of_the_code()
    place = PACKAGE
    for number, piece in enumerate(pieces[1:], start=1):
        file = place / f"{piece}.py"
        if (place / piece).is_dir():
            place = place / piece
        elif file.is_file():
            inside = pieces[number + 1 : number + 2]
            return all(re.search(rf"\b{each}\b", file.read_text()) for each in inside)
        else:
            return bool(re.search(rf"\b{piece}\b", (place / "__init__.py").read_text()))
    return True


def test_names_in_docstrings_exist() -> None:
    names = re.compile(r"`(rmrl(?:\.\w+)+|[\w/]+\.py|[a-z]\w*_\w+)`")
    gone = []
    for module in modules():
        for node, text in docstrings(module):
            for name in names.findall(text):
                if name not in OF_OTHER_PROJECTS and not is_there(name, module):
                    gone.append(f"{module.at(node)} speaks of {name}")
    assert not gone


def test_imports_go_down_the_layers_and_never_sideways() -> None:
    wrong = []
    for module in modules():
        own = layer_of(module.part)
        for node, name in imports(module):
            pieces = name.split(".")
            target = layer_of(pieces[1]) if pieces[0] == "rmrl" and len(pieces) > 1 else None
            if (
                own is not None
                and target is not None
                and pieces[1] != module.part
                and target <= own
            ):
                wrong.append(
                    f"{module.at(node)} imports {name}: {module.part} may import only layers"
                    " below it"
                )
    assert not wrong, "\n".join(wrong)


def test_what_lies_behind_the_api_is_imported_from_it() -> None:
    wrong: list[str] = []
    for module in modules():
        if module.part not in USERS_OF_THE_API:
            continue
        for node, name in imports(module, typing_too=True):
            if name.startswith(tuple(f"rmrl.{part}." for part in BEHIND_THE_API)):
                wrong.append(f"{module.at(node)} imports {name}: add it to rmrl/api.py")
    assert not wrong, "\n".join(wrong)


def test_names_of_the_api_are_those_it_declares_to_type_checkers() -> None:
    (api,) = (module for module in modules() if module.inside == "api.py")
    declared: dict[str, str] = {}
    for _, name in imports(api, typing_too=True):
        place, _, own = name.rpartition(".")
        if place.startswith("rmrl."):
            declared[own] = place
    table = next(node.value for node in api.tree.body if isinstance(node, ast.Assign))
    interface = importlib.import_module("rmrl.api")
    for place, names in ast.literal_eval(table).items():
        for name in names:
            assert declared.pop(name) == place
            assert getattr(interface, name) is getattr(importlib.import_module(place), name)
    assert not declared


@cache
def imported_modules() -> dict[str, set[str]]:
    """Module -> modules of the package that it imports, for types too. The package itself, which
    every import loads, is left out."""
    names = {dotted(module): module for module in modules() if module.inside != "__init__.py"}
    graph: dict[str, set[str]] = {}
    for name, module in names.items():
        targets = [target for _, target in imports(module, typing_too=True)]
        graph[name] = {
            each if each in names else each.rpartition(".")[0] for each in targets
        } & names.keys() - {name}
    return graph


def dotted(module: Module) -> str:
    return ".".join(("rmrl", *Path(module.inside).with_suffix("").parts)).removesuffix(".__init__")


def test_modules_import_each_other_in_no_circle() -> None:
    graph = {name: set(targets) for name, targets in imported_modules().items()}
    # What imports nothing that is left is in no circle.
    while free := {name for name, targets in graph.items() if not targets & graph.keys()}:
        graph = {name: targets for name, targets in graph.items() if name not in free}
    assert not graph, f"a circle of imports holds up these: {', '.join(sorted(graph))}"


def room_of(name: str) -> tuple[int, str] | None:
    """(layer, room) of a module of rmrl.rewards; None of others."""
    pieces = name.split(".")[2:]
    if not name.startswith("rmrl.rewards.") or not pieces:
        return None
    for path in ("/".join(pieces[:2]), pieces[0]):
        for number, rooms in enumerate(ROOMS_OF_REWARDS):
            if path in rooms:
                return number, path
    raise AssertionError(f"add the room of {name} to ROOMS_OF_REWARDS")


def test_rooms_of_rewards_import_downwards() -> None:
    wrong = []
    for name, targets in imported_modules().items():
        for target in sorted(targets):
            source, drain = room_of(name), room_of(target)
            if source and drain and source[1] != drain[1] and drain[0] <= source[0]:
                wrong.append(f"{name} imports {target}: {source[1]} may import only rooms below it")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("library", "places"), WHO_MAY_IMPORT.items())
def test_a_library_is_imported_only_where_it_belongs(library: str, places: tuple[str, ...]) -> None:
    wrong = [
        f"{module.at(node)} imports {name}; only rmrl/{', rmrl/'.join(places)} may"
        for module in modules()
        for node, name in imports(module)
        if name.split(".")[0] == library and not module.inside.startswith(places)
    ]
    assert not wrong, "\n".join(wrong)


def test_files_and_functions_stay_small() -> None:
    wrong = []
    for module in modules():
        lines = len(module.path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_FILE_LINES:
            wrong.append(f"rmrl/{module.inside} has {lines} lines; at most {MAX_FILE_LINES}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    wrong.append(
                        f"{module.at(node)} {node.name} has {length} lines; at most"
                        f" {MAX_FUNCTION_LINES}"
                    )
    assert not wrong, "\n".join(wrong)


def test_no_dangerous_call() -> None:
    wrong = []
    for module in modules():
        for node in ast.walk(module.tree):
            if (
                not isinstance(node, ast.Call)
                or (module.inside, ast.unparse(node.func)) in ALLOWED_CALLS
            ):
                continue
            if reason := FORBIDDEN_CALLS.get(ast.unparse(node.func)):
                wrong.append(f"{module.at(node)} calls {ast.unparse(node.func)}: {reason}")
    assert not wrong, "\n".join(wrong)


def test_remote_code_is_never_trusted_by_a_literal() -> None:
    wrong = [
        f"{module.at(keyword.value)} trust_remote_code=True: only the user's configuration may"
        " say so"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "trust_remote_code"
        and isinstance(keyword.value, ast.Constant)
        and keyword.value.value is True
    ]
    assert not wrong, "\n".join(wrong)


def swallows_everything(handler: ast.ExceptHandler) -> bool:
    catches_all = handler.type is not None and ast.unparse(handler.type) in {
        "Exception",
        "BaseException",
    }
    return catches_all and all(
        isinstance(statement, ast.Pass | ast.Continue) for statement in handler.body
    )


def test_every_exception_is_named_and_answered() -> None:
    wrong = []
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ExceptHandler) and node.type is None:
                wrong.append(f"{module.at(node)} bare except: name the exceptions")
            elif isinstance(node, ast.ExceptHandler) and swallows_everything(node):
                wrong.append(
                    f"{module.at(node)} swallows every exception: attribute it and surface it"
                )
    assert not wrong, "\n".join(wrong)


def test_every_module_says_what_it_is() -> None:
    wrong = [
        f"rmrl/{m.inside} has no docstring"
        for m in modules()
        if m.tree.body and ast.get_docstring(m.tree) is None
    ]
    assert not wrong, "\n".join(wrong)


def test_every_zip_says_whether_lengths_must_match() -> None:
    wrong = [
        f"{module.at(node)} zip without strict="
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "zip"
        and all(k.arg != "strict" for k in node.keywords)
        and len(node.args) > 1
    ]
    assert not wrong, "\n".join(wrong)


def test_no_folder_for_leftovers() -> None:
    assert not [m.inside for m in modules() if m.part in {"utils", "helpers", "common", "misc"}]


def test_light_modules_import_nothing_heavy() -> None:
    check = (
        f"import sys\nimport {', '.join(LIGHT_MODULES)}\nprint([name for name in {HEAVY_LIBRARIES}"
        " if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", check],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.strip() == "[]", f"{', '.join(LIGHT_MODULES)} import {done.stdout.strip()}"


def test_slow_tests_stand_in_a_folder_of_their_own() -> None:
    """tests/slow/conftest.py marks what stands there, so that a fast run imports none of it."""
    tests = ROOT / "tests"
    marked = [
        str(path.relative_to(ROOT))
        for path in tests.rglob("*.py")
        if path != tests / "slow" / "conftest.py" and "mark." + "slow" in path.read_text()
    ]
    assert marked == []
    alone = [
        str(path.relative_to(ROOT))
        for path in tests.rglob("*.py")
        if not path.is_relative_to(tests / "slow") and "mark." + "alone" in path.read_text()
    ]
    assert alone == []
