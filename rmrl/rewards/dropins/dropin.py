"""Loading reward functions by path: drop-in files `reward_functions/<name>.py` and
`package.module:function`.

A drop-in file is a model reward (`rm_preprocess` and `rm_postprocess`; the first alone where
`score_tokens` is the verdict) or a rule (`compute_score`); docs/rewards.md holds the contract.
Files are loaded under a private module name, so that a drop-in called `math_verify.py` never
shadows the package `math_verify`. A file whose text did not change is executed once per process.

Rule workers import this module too: it needs the standard library, `rmrl.errors`, `imports` and
`dropins.signatures` only.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import pickle
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from rmrl.errors import RewardFunctionError
from rmrl.registry import did_you_mean
from rmrl.rewards.dropins import imports, names_of_verl
from rmrl.rewards.dropins.signatures import (
    RULE_SIGNATURE,
    bound,
    instantiated,
    keyword_names,
    parameters_of,
    rule_form,
    takes,
)
from rmrl.rewards.dropins.verifiers_rubric import is_rubric, of_rubric

KNOWN_ARGUMENTS = ("ground_truths", "extra_infos", "data_sources", "prompts", "responses", "fences")
"""Columns that `rm_preprocess` and `rm_postprocess` get when their signature names them."""

SIGNATURES = {
    "compute_score": RULE_SIGNATURE,
    "rm_preprocess": "rm_preprocess(text_prompts, text_responses, tgt_tokenizer)",
    "rm_postprocess": "rm_postprocess(results)",
}
CRITIQUE_SIGNATURE = "rm_critique(text_prompts, text_responses, critiques, tgt_tokenizer)"
_POSITIONAL = {"rm_preprocess": 3, "rm_postprocess": 1, "rm_critique": 4}
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A function's import path, so that another process can load it."""

    target: str
    """Path of a .py file, or the dotted name of an importable module."""
    attribute: str = "compute_score"
    code: str | None = field(default=None, repr=False)
    """Text to run instead of reading the file, so that a file edited during a run cannot change its
    rewards."""
    arguments: str = ""
    """The rule's own arguments, a JSON object. "": none."""
    copy: bytes = field(default=b"", repr=False)
    """A copy of a function that no file or module has, by cloudpickle in this program itself. b"":
    none."""

    @property
    def is_file(self) -> bool:
        return self.target.endswith(".py")

    def __str__(self) -> str:
        return f"{self.target}:{self.attribute}"

    def frozen(self) -> FunctionSource:
        """The same source with the file's present text in it. A module stays a module."""
        if not self.is_file or self.code is not None:
            return self
        return FunctionSource(
            str(Path(self.target).resolve()),
            self.attribute,
            read_source(Path(self.target)),
            self.arguments,
        )

    def load(self) -> Callable[..., Any]:
        """Import the function. A class is instantiated. RewardFunctionError when the import raises
        or there is no such function."""
        target = self._copied() if self.copy else self._imported()
        arguments = json.loads(self.arguments) if self.arguments else {}
        if inspect.isclass(target):
            return instantiated(target, str(self), arguments)
        if is_rubric(target):
            return of_rubric(target)
        if not callable(target):
            raise RewardFunctionError(f"{self} is {type(target).__name__}; name a function.")
        return bound(target, arguments, str(self))

    def _copied(self) -> Any:
        try:
            return pickle.loads(self.copy)
        except Exception as error:  # it may import modules, which may raise anything
            raise RewardFunctionError(
                f"Copying {self} to another process raised {describe_exception(error)}."
            ) from error

    def _imported(self) -> Any:
        if self.is_file:
            module: Any = load_module(Path(self.target), self.code)
            code = read_source(Path(self.target)) if self.code is None else self.code
            _check_inner_imports(code, Path(self.target), [self.attribute.partition(".")[0]])
        else:
            imports.importable()
            try:
                module = importlib.import_module(self.target)
            except Exception as error:  # a module may raise anything while it is imported
                raise RewardFunctionError(
                    f"Importing {self.target} raised {describe_exception(error)}."
                ) from error
        target: Any = module
        for part in self.attribute.split("."):
            if not hasattr(target, part):
                names: list[str] = [
                    name
                    for name, value in vars(module).items()
                    if callable(value) and not name.startswith("_")
                ]
                hint = did_you_mean(self.attribute, names)
                raise RewardFunctionError(f"{self.target} has no '{self.attribute}'{hint}")
            target = getattr(target, part)
        return target


@dataclass(frozen=True, slots=True, kw_only=True)
class DropIn:
    """One user's reward function, loaded and checked."""

    name: str
    path: Path
    """File of the code, or the name of a compiled module."""
    kind: Literal["model", "rule"]
    spec: Mapping[str, Any] = field(default_factory=dict)
    """The file's module-level SPEC, {} without one."""
    code_hash: str = ""
    """sha256 of the file, hexadecimal."""
    preprocess: Callable[..., Any] | None = None
    """rm_preprocess, None for a rule."""
    postprocess: Callable[..., Any] | None = None
    """rm_postprocess, None for a rule, and for a file without one (see `without_postprocess`)."""
    critique: Callable[..., Any] | None = None
    """rm_critique: a `critique` reward's own rendering for its scorer, None without it."""
    compute_score: Callable[..., Any] | None = None
    """The rule, None for a model reward."""
    source: FunctionSource | None = None
    """Source from which a worker loads `compute_score`, None for a model reward."""

    @property
    def is_rule(self) -> bool:
        """True for a function that scores by itself, in a worker process."""
        return self.compute_score is not None


def load_dropin(
    path: Path, name: str, *, known_keys: Collection[str] | None = None, arguments: str = ""
) -> DropIn:
    """Load and check the drop-in file `path` for the reward `name`. `known_keys`: keys that SPEC
    may contain. None: any key.

    `arguments`: a rule's, as in `FunctionSource`.

    RewardFunctionError: the import raised, functions are missing or have the wrong parameters, SPEC
      is malformed. A file with rm_preprocess alone is loaded: whether that is enough depends on the
      reward's entries (`without_postprocess`).
    """
    path = path.resolve()
    code = read_source(path)
    module = load_module(path, code)
    spec = _checked_spec(module, path, known_keys)
    functions = {n: getattr(module, n) for n in SIGNATURES if callable(getattr(module, n, None))}
    _check_inner_imports(code, path, (*functions, "rm_critique"))
    kind = _kind_of(path, functions, spec)
    common: dict[str, Any] = {
        "name": name,
        "path": path,
        "kind": kind,
        "spec": spec,
        "code_hash": code_hash_of(code, path.parent),
    }
    if kind == "rule":
        source = FunctionSource(str(path), "compute_score", code, arguments)
        function = source.load()
        rule_arguments(function, f"{path}:compute_score")
        return DropIn(**common, compute_score=function, source=source)
    critique = getattr(module, "rm_critique", None)
    for function_name in ("rm_preprocess", "rm_postprocess"):
        if function_name in functions:
            _check_model_function(functions[function_name], function_name, path)
    if callable(critique):
        _check_model_function(critique, "rm_critique", path)
    return DropIn(
        **common,
        preprocess=functions["rm_preprocess"],
        postprocess=functions.get("rm_postprocess"),
        critique=critique,
    )


def without_postprocess(dropin: DropIn) -> str:
    """Return the error for a model reward whose file has rm_preprocess alone and whose verdicts
    need reading."""
    return (
        f"{dropin.path} defines rm_preprocess but not rm_postprocess: a model reward needs both."
        f" Add {SIGNATURES['rm_postprocess']}; a reward with score_tokens={{Yes:1,No:0}} reads"
        " nothing and one with a parser reads by that: these need rm_preprocess alone."
    )


def load_function(target: str, name: str, *, arguments: str = "") -> DropIn:
    """Load the rule `target`, "package.module:function". RewardFunctionError as with
    `load_dropin`."""
    module_name, _, attribute = target.partition(":")
    source = FunctionSource(module_name, attribute or "compute_score", arguments=arguments)
    return function_dropin(source, name)


def function_dropin(source: FunctionSource, name: str) -> DropIn:
    """Load the rule that a function is. RewardFunctionError as with `load_dropin`."""
    source = source.frozen()
    function = source.load()
    rule_arguments(function, str(source))
    path = Path(source.target)
    if not source.is_file:
        path = Path(getattr(sys.modules.get(source.target), "__file__", None) or source.target)
    if source.copy:
        code_hash = hashlib.sha256(source.copy).hexdigest()
    elif path.suffix == ".py":
        code_hash = code_hash_of(source.code or read_source(path), path.parent)
    else:
        compiled = path.read_bytes() if path.is_file() else str(source).encode()
        code_hash = hashlib.sha256(compiled).hexdigest()
    return DropIn(
        name=name,
        path=path,
        kind="rule",
        code_hash=code_hash,
        compute_score=function,
        source=source,
    )


def load_module(path: Path, code: str | None = None) -> ModuleType:
    """Execute a file as a module with a private name. The same text in the same file is executed
    once per process.

    `code` replaces the text on disk. RewardFunctionError names the file, the line and the exception
    when it raises.
    """
    path = path.resolve()
    code = read_source(path) if code is None else code
    digest = hashlib.sha256(f"{path}\n{code}".encode()).hexdigest()[:16]
    module_name = f"_rmrl_dropin_{digest}_{path.stem}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    module = ModuleType(module_name)
    module.__file__ = str(path)
    module.__dict__["__builtins__"] = names_of_verl.Names(path.parent).builtins()
    module.__package__ = imports.package_of(path.parent)
    imports.importable(path.parent)
    # before it runs: dataclasses and pickle look their module up
    sys.modules[module_name] = module
    try:
        exec(compile(code, str(path), "exec"), module.__dict__)
    except BaseException as error:
        del sys.modules[module_name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise RewardFunctionError(
            f"Loading {path} raised {describe_exception(error, str(path))}."
        ) from error
    return module


def code_hash_of(code: str, folder: Path) -> str:
    """sha256 of a drop-in's text and of the files beside it that it imports, hexadecimal."""
    texts = [code.encode(), *(file.read_bytes() for file in imports.siblings(code, folder))]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def read_source(path: Path) -> str:
    """A Python file's text; RewardFunctionError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RewardFunctionError(
            f"The reward function file {path} cannot be read: {error}."
        ) from error


def call_with_known_arguments(
    function: Callable[..., Any], positional: tuple[Any, ...], optional: Mapping[str, Any]
) -> Any:
    """Call `function(*positional)` with the entries in `optional` that its signature names, with
    all of them if it has **kwargs."""
    parameters = list(inspect.signature(function).parameters.values())
    passed = {p.name for p in parameters[: len(positional)] if p.kind in _BY_POSITION}
    if takes(parameters, inspect.Parameter.VAR_KEYWORD):
        names = tuple(optional)
    elif takes(parameters, inspect.Parameter.VAR_POSITIONAL):
        names = keyword_names(parameters)
    else:
        names = keyword_names(parameters[len(positional) :])
    arguments: dict[str, Any] = {
        name: value for name, value in optional.items() if name in names and name not in passed
    }
    return function(*positional, **arguments)


def rule_arguments(function: Callable[..., Any], where: str) -> tuple[str, ...]:
    """Return the keyword arguments that a rule names. Raises RewardFunctionError, naming `where`,
    when it cannot be called as one."""
    return rule_form(function, where).names


def describe_exception(error: BaseException, file: str = "") -> str:
    """Describe an error in one line: type, message and place. The place is the innermost frame, and
    before it the innermost frame in `file` if there is one."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    try:
        message = str(error)
    except Exception:  # a message that cannot be printed must not hide the error
        message = "(its message cannot be printed)"
    if len(message) > 500:
        message = message[:500] + " ..."
    importer = names_of_verl.__file__  # between a user's import statement and the import system
    innermost: list[traceback.FrameSummary] = []
    of_file: list[traceback.FrameSummary] = []
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename != importer:
            innermost = [frame]
            if file and frame.filename == file:
                of_file = [frame]
    if of_file == innermost:
        of_file = []
    places: list[str] = []
    for frame in of_file + innermost:
        code = f": {frame.line}" if frame.line else ""
        places.append(f"{frame.filename}:{frame.lineno} in {frame.name}{code}")
    if not places:
        return f"{type(error).__name__}: {message}"
    return f"{type(error).__name__}: {message} ({'; '.join(places)})"


def _check_inner_imports(code: str, path: Path, entries: Collection[str]) -> None:
    """RewardFunctionError where a function of the file is sure to import a part of verl that is not
    here."""
    problem = names_of_verl.missing_inside(code, path, entries)
    if problem:
        raise RewardFunctionError(problem)


def _kind_of(
    path: Path, functions: Mapping[str, Any], spec: Mapping[str, Any]
) -> Literal["model", "rule"]:
    pair = {"rm_preprocess", "rm_postprocess"} & set(functions)
    rule = "compute_score" in functions
    if rule and len(pair) == 2:
        if "kind" not in spec:
            raise RewardFunctionError(
                f"{path} defines compute_score (a rule) as well as rm_preprocess and rm_postprocess"
                " (a model reward): remove one, or choose with SPEC = {'kind': 'rule'} or"
                " SPEC = {'kind': 'generative'}."
            )
        return "rule" if spec["kind"] == "rule" else "model"
    if rule and not pair:
        return "rule"
    if len(pair) == 2 or (pair == {"rm_preprocess"} and not rule):
        return "model"
    if pair:
        (missing,) = {"rm_preprocess", "rm_postprocess"} - pair
        raise RewardFunctionError(
            f"{path} defines {pair.pop()} but not {missing}: a model reward needs both. Add"
            f" {SIGNATURES[missing]}."
        )
    names = ", ".join(sorted(functions)) or "none of them"
    raise RewardFunctionError(
        f"{path} is no reward function. It needs either {SIGNATURES['compute_score']}, or both"
        f" {SIGNATURES['rm_preprocess']} and {SIGNATURES['rm_postprocess']}; found: {names}."
    )


def _checked_spec(
    module: ModuleType, path: Path, known_keys: Collection[str] | None
) -> dict[str, Any]:
    spec = getattr(module, "SPEC", {})
    if not isinstance(spec, Mapping):
        raise RewardFunctionError(
            f"{path}: SPEC is {type(spec).__name__}; it must be a dict such as SPEC = {{'kind':"
            " 'generative'}."
        )
    for key in spec:
        if known_keys is not None and key not in known_keys:
            raise RewardFunctionError(
                f"{path}: SPEC has an unknown entry"
                f" {key!r}{did_you_mean(str(key), list(known_keys))}"
            )
    return dict(spec)


def _check_model_function(function: Callable[..., Any], name: str, path: Path) -> None:
    """Check that there are enough places for the arguments passed by position, and that nothing
    else is required but the known columns."""
    parameters = parameters_of(function, f"{path}:{name}")
    count = _POSITIONAL[name]
    places = [p for p in parameters if p.kind in _BY_POSITION]
    unknown: list[str] = []
    for parameter in parameters:
        if parameter.default is not parameter.empty:
            continue
        passed = parameter in places[:count] or parameter.name in KNOWN_ARGUMENTS
        if not passed and parameter.kind in (*_BY_POSITION, *_BY_NAME):
            unknown.append(parameter.name)
    if unknown:
        problem = f"needs {', '.join(unknown)}"
    elif len(places) < count and not takes(parameters, inspect.Parameter.VAR_POSITIONAL):
        problem = f"takes {len(places)} positional arguments instead of {count}"
    else:
        return
    raise RewardFunctionError(
        f"{path}: {name}{inspect.signature(function)} {problem}. It is called as"
        f" {SIGNATURES.get(name, CRITIQUE_SIGNATURE)};"
        f" {', '.join(KNOWN_ARGUMENTS)} are passed by keyword where its signature names them."
    )
