"""The command lines in a shell script, read and never run.

Understood: assignments (export and arrays too), quotes, continued lines, comments, `$NAME`,
  `${NAME}`, `${NAME:-default}`, `${ARRAY[@]}` and arithmetic of whole numbers. What only running
  would tell stays as a variable, with a note.
"""

from __future__ import annotations

import ast
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
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip


@dataclass(slots=True)
class Script:
    """What reading a script found out."""

    statements: list[list[str]] = field(default_factory=list[list[str]])
    """Words of each simple command, variables filled in."""
    unknown: dict[str, str] = field(default_factory=dict[str, str])
    """Name of a variable that stands for what only running would tell -> what stood in the script
    ("": set outside)."""
    unsure: set[str] = field(default_factory=set[str])
    """Variables that are set inside an if, case or loop: the last assignment is taken."""
    passes_arguments: bool = False
    """`$@` or `$*` stands in it."""
    _values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _set_inside: set[str] = field(default_factory=set[str])
    _depth: int = 0

    def add(self, raw: list[str]) -> None:
        """The next statement, as raw words with their quotes."""
        words = list(raw)
        while words and words[0] in _LEADING:
            self._depth += (words[0] in _OPENS) - (words[0] in _CLOSES)
            words = words[1:]
        while words and (match := _ASSIGNMENT.fullmatch(words[0])):
            self._assign(match[1], match[3], adds=bool(match[2]))
            words = words[1:]
        expanded = [word for one in words for word in self.expand(one)]
        if expanded:
            self.statements.append([word for word in expanded if not _REDIRECTION.fullmatch(word)])

    def expand(self, raw: str) -> list[str]:
        """The words that one raw word stands for: quotes gone, variables filled in, unquoted ones
        split at blanks."""
        fields: list[str] = [""]
        started = False
        nothing = False
        for text, quoted, several in self._pieces(raw):
            parts = _fields(text, quoted) if several is None else several
            started = started or quoted or bool(text) or bool(several)
            nothing = nothing or several == []
            fields[-1] += parts[0] if parts else ""
            fields += parts[1:]
        return fields if started and not (nothing and fields == [""]) else []

    def _assign(self, name: str, raw: str, *, adds: bool) -> None:
        if raw.startswith("("):
            values = [
                word for each in raw_words(raw[1:-1]) for part in each for word in self.expand(part)
            ]
        else:
            values = [" ".join(self.expand(raw))]
        self._values[name] = (
            [*self._values.get(name, []), *values] if adds and raw.startswith("(") else values
        )
        (self._set_inside.add if self._depth > 0 else self._set_inside.discard)(name)

    def _pieces(self, raw: str) -> Iterator[tuple[str, bool, list[str] | None]]:
        """(text, whether quoted, the words of an array where it is one), from left to right."""
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
                kept = "\\" if double and raw[at + 1] not in '$`"\\' else ""
                yield kept + raw[at + 1], True, None
                at += 2
            elif letter in "$`":
                end = _end_of_expansion(raw, at)
                text, several = self._value(raw[at:end])
                yield text, double, several
                at = end
            else:
                yield letter, True, None
                at += 1

    def _value(self, expansion: str) -> tuple[str, list[str] | None]:
        """(text, words of an array or None) of `$NAME`, `${...}`, `$(...)`, `$((...))`."""
        if expansion.startswith("$((") and expansion.endswith("))"):
            number = self._number(expansion[3:-2])
            return (self._stands_for(expansion), None) if number is None else (str(number), None)
        if expansion.startswith(("$(", "`")):
            return self._stands_for(expansion), None
        inner = expansion[2:-1] if expansion.startswith("${") else expansion[1:]
        if inner in ("@", "*"):
            self.passes_arguments = True
            return "", []
        array = _ARRAY.fullmatch(inner)
        if array:
            return self._of_array(array[1])
        default = _WITH_DEFAULT.fullmatch(inner)
        name = default[1] if default else inner
        if self._values.get(name, [""])[0] or (name in self._values and default is None):
            self._note(name)
            return self._values[name][0] if self._values[name] else "", None
        if default:
            return " ".join(self.expand(default[2])), None
        return (self._unset(name) if _NAME.fullmatch(name) else self._stands_for(expansion)), None

    def _of_array(self, name: str) -> tuple[str, list[str] | None]:
        if name not in self._values:
            return self._unset(name), None
        self._note(name)
        return "", self._values[name]

    def _note(self, name: str) -> None:
        if name in self._set_inside:
            self.unsure.add(name)

    def _unset(self, name: str) -> str:
        self.unknown.setdefault(name, "")
        return f"${name}"

    def _stands_for(self, expansion: str) -> str:
        """A variable in place of what only running would tell."""
        known = next((name for name, text in self.unknown.items() if text == expansion), "")
        name = known or f"RESULT_{sum(bool(text) for text in self.unknown.values()) + 1}"
        self.unknown[name] = expansion
        return f"${name}"

    def _number(self, text: str) -> int | None:
        """Value of an arithmetic expression; None where it has anything but whole numbers, known
        variables and + - * / %."""
        filled = re.sub(
            r"\$?\{?([A-Za-z_]\w*)\}?", lambda match: (self._values.get(match[1]) or ["?"])[0], text
        )
        try:
            return _computed(ast.parse(filled.strip(), mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
            return None


def read_script(text: str) -> Script:
    """All statements of a script, in their order."""
    script = Script()
    for raw in raw_words(text.replace("\\\r\n", " ").replace("\\\n", " ")):
        script.add(raw)
    return script


def raw_words(text: str) -> Iterator[list[str]]:
    """Words of each statement with their quotes; comments are left out. A statement ends at a
    line's end and at `;`, `&`, `|`."""
    words: list[str] = []
    word = ""
    at = 0
    while at < len(text):
        letter = text[at]
        ends_statement = letter in "\n;|" or (letter == "&" and not word.endswith((">", "<")))
        if letter == "#" and not word:
            at = _line_end(text, at)
        elif letter in " \t\r" or ends_statement:
            words += [word] if word else []
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


def _fields(text: str, quoted: bool) -> list[str]:
    """A value that stands outside quotes is several words where it has blanks."""
    return [text] if quoted else text.split() or [""]


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _end_of_piece(text: str, at: int, *, array: bool) -> int:
    """Where the quoted text, expansion, array or single letter that starts here ends."""
    letter = text[at]
    if letter == "'":
        return _behind(text, "'", at + 1)
    if letter == '"':
        return _end_of_double(text, at)
    if letter in "$`":
        return _end_of_expansion(text, at)
    if letter == "(" and array:
        return _end_of_brackets(text, at)
    return min(at + (2 if letter == "\\" else 1), len(text))


def _end_of_double(text: str, at: int) -> int:
    at += 1
    while at < len(text) and text[at] != '"':
        at = (
            _end_of_expansion(text, at) if text[at] in "$`" else at + (2 if text[at] == "\\" else 1)
        )
    return min(at + 1, len(text))


def _end_of_expansion(text: str, at: int) -> int:
    """Behind `$NAME`, `$1`, `$@`, `${...}`, `$(...)` or a backquoted command; a lone $ is
    itself."""
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
    """Behind the bracket that closes the one at `at`; quotes hide brackets."""
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


def _behind(text: str, mark: str, at: int) -> int:
    end = text.find(mark, at)
    return len(text) if end < 0 else end + 1


def _computed(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_computed(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_computed(node.left), _computed(node.right))
    raise ValueError(f"{ast.dump(node)} is no arithmetic of whole numbers")
