"""A command line's secrets, hidden before it is recorded or printed."""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "<secret>"
_WORDS = frozenset(
    {
        "apikey",
        "auth",
        "authorization",
        "cookie",
        "credential",
        "credentials",
        "passphrase",
        "passwd",
        "password",
        "pwd",
        "secret",
        "token",
    }
)
"""Last words of names whose values are secret."""
_KEYS = frozenset({"access", "account", "api", "auth", "private", "secret", "subscription"})
"""Words before `key` that make it a secret; data.prompt_key is none."""
_VOCABULARY = frozenset({"bos", "eos", "pad", "stop", "unk", "yes", "no"})
"""Words before `token` that make it one of a tokenizer."""

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_IN_URL = re.compile(r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#\"']*@")
_BEARER = re.compile(r"\b(?P<scheme>Bearer)\s+[\w.~+/=-]{6,}", re.IGNORECASE)
_SHAPES = re.compile(
    r"\b(?:sk-[\w-]{16,}|hf_\w{16,}|gh[opsu]_\w{20,}|github_pat_\w{20,}|AKIA[A-Z0-9]{16})"
)
"""Keys of model providers, hubs and clouds, which are secret under any name."""
_NAMED = re.compile(r"(?P<before>[?&]?)(?P<name>[\w.+~-]+)[\"']?\s*[=:]\s*")
_VALUE = re.compile(
    r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\{[^}]*\}|\[[^\]]*\]|[^,}\]\"']+", re.DOTALL
)
_IN_QUERY = re.compile(r"[^\s&#,}\]\"']+")
_ELSEWHERE = "${"
"""Beginning of a value that names a variable of the environment and holds no secret itself."""


def hide_secrets(words: Sequence[str]) -> list[str]:
    """Return a command line's words with `<secret>` for each value under a name such as api_key,
    HF_TOKEN, password or Authorization, for user and password in an address, and for tokens that
    are known by their shape."""
    shown: list[str] = []
    is_secret = False
    for word in words:
        name, equals, value = word.partition("=")
        if is_secret and not word.startswith("-"):
            shown.append(HIDDEN)
        elif equals and _is_secret(name) and value and not value.startswith(_ELSEWHERE):
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(_hidden_in(word))
        is_secret = word.startswith("--") and not equals and _is_secret(word)
    return shown


def _hidden_in(text: str) -> str:
    """Return `text` without the secrets that stand anywhere in it: in mappings, addresses and
    headers."""
    text = _IN_URL.sub(rf"\g<scheme>{HIDDEN}@", text)
    parts: list[str] = []
    end = 0
    for match in _NAMED.finditer(text):
        if match.start() < end or not _is_secret(match["name"]):
            continue
        pattern = _IN_QUERY if match["before"] else _VALUE
        value = pattern.match(text, match.end())
        if value is None or value[0].startswith(_ELSEWHERE):
            continue
        parts += [text[end : match.end()], HIDDEN]
        end = value.end()
    text = "".join([*parts, text[end:]])
    text = _BEARER.sub(rf"\g<scheme> {HIDDEN}", text)
    return _SHAPES.sub(HIDDEN, text)


def _is_secret(name: str) -> bool:
    """Return whether values under this name are secret, by the last words in its last part."""
    parts = _PARTS.findall(name.rpartition(".")[2])
    words = [part.lower() for part in parts]
    last = words[-1:]
    before = words[-2:-1]
    if last == ["token"]:
        return _VOCABULARY.isdisjoint(before)
    if last == ["key"]:
        return not _KEYS.isdisjoint(before) or parts[-1] == "KEY"
    return not _WORDS.isdisjoint(last)
