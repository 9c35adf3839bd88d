"""The command lines in a shell script, read and never run.

Supported: assignments (with export, and to arrays), quotes, continued lines, comments, `$NAME`,
`${NAME}`, `${NAME:-default}`, `${ARRAY[@]}` and integer arithmetic. A value that depends on running
the script stays a variable, with a note.
"""

from __future__ import annotations

import ast
import itertools
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_BEFORE_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")
_WITH_DEFAULT = re.compile(r"(\w+|@):?[-=](.*)", re.DOTALL)
_ARRAY = re.compile(r"([A-Za-z_]\w*)\[[@*]\]")
_REDIRECTION = re.compile(r"\d*(>>?|<)(&\d)?.*")
_OPENS = ("if", "for", "while", "until", "case")
_CLOSES = ("fi", "done", "esac")
_BRACKETS = {"(": ")", "{": "}"}
_LEADING = (
    *_OPENS,
    *_CLOSES,
    "then",
    "else",
    "elif",
    "do",
    "{",
    "}",
    "export",
    "local",
    "declare",
    "readonly",
)
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(slots=True)
class Script:
    """A script's statements and variables."""

    statements: list[list[str]] = field(default_factory=list[list[str]])
    """Words of each simple command, variables filled in."""
    unknown: dict[str, str] = field(default_factory=dict[str, str])
    """Name of a variable whose value depends on running the script -> its expansion in the script
    ("": set outside)."""
    unsure: set[str] = field(default_factory=set[str])
    """Variables that are set inside an if, case or loop: the last assignment is taken."""
    passes_arguments: bool = False
    """Whether the script contains `$@` or `$*`."""
    _values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _set_inside: set[str] = field(default_factory=set[str])
    _depth: int = 0

    def add(self, raw: list[str]) -> None:
        """Read the next statement, given as raw words with their quotes."""
        words = list(raw)
        while words and words[0] in _LEADING:
            self._depth += (words[0] in _OPENS) - (words[0] in _CLOSES)
            words = words[1:]
        while words and (match := _ASSIGNMENT.fullmatch(words[0])):
            name, adds, value = match.groups()
            if value.startswith("("):
                values = list(self._values.get(name, [])) if adds else []
                for entries in raw_words(value[1:-1]):
                    values += self._expand_all(entries)
            else:
                values = [" ".join(self.expand(value))]
            self._values[name] = values
            if self._depth > 0:
                self._set_inside.add(name)
            else:
                self._set_inside.discard(name)
            words = words[1:]
        expanded = self._expand_all(words)
        if expanded:
            self.statements.append([word for word in expanded if not _REDIRECTION.fullmatch(word)])

    def expand(self, raw: str) -> list[str]:
        """Return the words from one raw word: without quotes, variables replaced by their values,
        unquoted values split at blanks."""
        fields: list[str] = [""]
        started = False
        has_empty_array = False
        for text, quoted, array in self._pieces(raw):
            if array is not None:
                parts = array
            elif quoted:
                parts = [text]
            else:
                parts = text.split() or [""]
            started = started or quoted or bool(text) or bool(array)
            has_empty_array = has_empty_array or array == []
            fields[-1] += parts[0] if parts else ""
            fields += parts[1:]
        return fields if started and not (has_empty_array and fields == [""]) else []

    def _expand_all(self, words: list[str]) -> list[str]:
        return list(itertools.chain.from_iterable(map(self.expand, words)))

    def _pieces(self, raw: str) -> Iterator[tuple[str, bool, list[str] | None]]:
        """Yield (text, whether it is quoted, an array's words or None) from left to right."""
        at = 0
        double = False
        while at < len(raw):
            letter = raw[at]
            if letter == "'" and not double:
                end = _behind(raw, "'", at + 1)
                yield raw[at + 1 : end].removesuffix("'"), True, None
                at = end
            elif letter == '"':
                double = not double
                yield "", True, None
                at += 1
            elif letter == "\\" and at + 1 < len(raw):
                is_escape = not double or raw[at + 1] in '$`"\\'
                yield raw[at + 1] if is_escape else raw[at : at + 2], True, None
                at += 2
            elif letter in "$`":
                end = _end_of_expansion(raw, at)
                text, array = self._value(raw[at:end])
                yield text, double, array
                at = end
            else:
                yield letter, True, None
                at += 1

    def _value(self, expansion: str) -> tuple[str, list[str] | None]:
        """Return (text, an array's words or None) for `$NAME`, `${...}`, `$(...)`, `$((...))`."""
        if expansion.startswith("$((") and expansion.endswith("))"):
            number = self._number(expansion[3:-2])
            return self._placeholder(expansion) if number is None else str(number), None
        if expansion.startswith(("$(", "`")):
            return self._placeholder(expansion), None
        inner = expansion[2:-1] if expansion.startswith("${") else expansion[1:]
        if inner in ("@", "*"):
            self.passes_arguments = True
            return "", []
        array = _ARRAY.fullmatch(inner)
        if array:
            words = self._look_up(array[1])
            return (self._unset(array[1]), None) if words is None else ("", words)
        default = _WITH_DEFAULT.fullmatch(inner)
        name = default[1] if default else inner
        if self._values.get(name, [""])[0] or (name in self._values and default is None):
            words = self._look_up(name)
            return words[0] if words else "", None
        if default:
            return " ".join(self.expand(default[2])), None
        return self._unset(name) if _NAME.fullmatch(name) else self._placeholder(expansion), None

    def _look_up(self, name: str) -> list[str] | None:
        """Return a variable's words, None where the script does not set it."""
        if name in self._values and name in self._set_inside:
            self.unsure.add(name)
        return self._values.get(name)

    def _unset(self, name: str) -> str:
        self.unknown.setdefault(name, "")
        return f"${name}"

    def _placeholder(self, expansion: str) -> str:
        """Return a variable for an expansion whose value depends on running the script."""
        for name, text in self.unknown.items():
            if text == expansion:
                return f"${name}"
        count = sum(map(bool, self.unknown.values()))
        name = f"RESULT_{count + 1}"
        self.unknown[name] = expansion
        return f"${name}"

    def _number(self, text: str) -> int | None:
        """Evaluate integer arithmetic, None where the text has anything but whole numbers, known
        variables and + - * / %."""
        filled = re.sub(
            r"\$?\{?([A-Za-z_]\w*)\}?", lambda match: (self._values.get(match[1]) or ["?"])[0], text
        )
        try:
            return _evaluate(ast.parse(filled.strip(), mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
            return None


def read_script(text: str) -> Script:
    """Read a script's statements, in order."""
    script = Script()
    for raw in raw_words(text.replace("\\\r\n", " ").replace("\\\n", " ")):
        script.add(raw)
    return script


def raw_words(text: str) -> Iterator[list[str]]:
    """Yield each statement's words with their quotes, without comments. A statement ends with its
    line and at `;`, `&`, `|`."""
    words: list[str] = []
    word = ""
    at = 0
    while at < len(text):
        letter = text[at]
        ends_statement = letter in "\n;|" or (letter == "&" and not word.endswith((">", "<")))
        if letter == "#" and not word:
            at = _index(text, "\n", at)
        elif letter in " \t\r" or ends_statement:
            if word:
                words.append(word)
            word = ""
            at += 1
        else:
            end = _end_of_piece(text, at, array=_BEFORE_ARRAY.fullmatch(word) is not None)
            word += text[at:end]
            at = end
        if ends_statement:
            yield words
            words = []
    yield [*words, word] if word else words


def _end_of_piece(text: str, at: int, *, array: bool) -> int:
    """Return where the quoted text, expansion, array or single letter ends that starts at `at`."""
    letter = text[at]
    if letter == "'":
        return _behind(text, "'", at + 1)
    if letter == '"':
        at += 1
        while at < len(text) and text[at] != '"':
            at = _end_of_letter(text, at)
        return min(at + 1, len(text))
    if letter == "(" and array:
        return _end_of_brackets(text, at)
    return _end_of_letter(text, at)


def _end_of_letter(text: str, at: int) -> int:
    """Return where the expansion, escaped letter or letter ends that starts at `at`."""
    if text[at] in "$`":
        return _end_of_expansion(text, at)
    return min(at + (2 if text[at] == "\\" else 1), len(text))


def _end_of_expansion(text: str, at: int) -> int:
    """Return where `$NAME`, `$1`, `$@`, `${...}`, `$(...)` or a backquoted command ends. A lone $
    is a letter."""
    if text[at] == "`":
        return _behind(text, "`", at + 1)
    following = text[at + 1 : at + 2]
    if following in ("{", "(") and following:
        return _end_of_brackets(text, at + 1)
    match = _NAME.match(text, at + 1)
    if match:
        return match.end()
    return at + 2 if following and following in "@*#?$!0123456789" else at + 1


def _end_of_brackets(text: str, at: int) -> int:
    """Return where the bracket ends that starts at `at`; brackets in quotes do not count."""
    opening = text[at]
    closing = _BRACKETS[opening]
    depth = 0
    while at < len(text):
        if text[at] == "'":
            at = _behind(text, "'", at + 1)
            continue
        if text[at] == "\\":
            at += 2
            continue
        depth += (text[at] == opening) - (text[at] == closing)
        at += 1
        if depth == 0:
            return at
    return len(text)


def _index(text: str, mark: str, at: int) -> int:
    """Return where the next `mark` is, or the text's length."""
    position = text.find(mark, at)
    return len(text) if position < 0 else position


def _behind(text: str, mark: str, at: int) -> int:
    return min(_index(text, mark, at) + 1, len(text))


def _evaluate(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    raise ValueError(f"{ast.dump(node)} is not integer arithmetic")
