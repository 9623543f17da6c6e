"""Redacts secrets in text that leaves crushpy's own storage: exports, and what is carried to a new session.

Every pattern takes linear time: repetitions are bounded, possessive, or match in one way only. Only single
characters have possessive quantifiers: for groups, Python before 3.11.5 has a bug.
"""

import os
import re
from collections import Counter
from typing import Any, cast

from crushpy.util.lazy_pattern import lazy_pattern

MARK = "[redacted]"

_SECRET_SUFFIXES = ("_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_ACCESS_KEY")
_MIN_LENGTH = 8


def _any_case(pattern: str) -> str:
    """`pattern` for both cases of letters. Several times faster than re.IGNORECASE."""
    return re.sub("[a-z]", lambda letter: f"[{letter[0].upper()}{letter[0]}]", pattern)


_KEY_START = lazy_pattern(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = lazy_pattern(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINE = lazy_pattern(r"\s*+(?:\\[nr]\s*+)*[A-Za-z0-9+/=]{16,}+")

_KEY_FORMS = {
    # OpenAI, Anthropic, OpenRouter: with a digit, unlike names in CSS.
    "sk-": r"(?=[A-Za-z_-]*+[0-9])[A-Za-z0-9_-]{20,}+",
    "github_pat_": r"[A-Za-z0-9_]{20,}+",
    "glpat-": r"[A-Za-z0-9_-]{20,}+",
    **dict.fromkeys(("AKIA", "ASIA"), r"[A-Z0-9]{16}(?![A-Za-z0-9])"),  # AWS
    "xox": r"[a-z]-[A-Za-z0-9-]{10,}+",  # Slack
    "xapp-": r"[A-Za-z0-9-]{20,}+",
    "AIza": r"[A-Za-z0-9_-]{30,}+",  # Google
    "ya29.": r"[A-Za-z0-9_-]{20,}+",
    "GOCSPX-": r"[A-Za-z0-9_-]{20,}+",
    "hf_": r"[A-Za-z0-9]{30,}+",
    "gsk_": r"[A-Za-z0-9]{30,}+",
    "npm_": r"[A-Za-z0-9]{36}",
    "pypi-": r"[A-Za-z0-9_-]{50,}+",
    **dict.fromkeys(("xai-", "pplx-", "tvly-"), r"[A-Za-z0-9_-]{20,}+"),
    "r8_": r"[A-Za-z0-9]{30,}+",
    "dop_v1_": r"[a-f0-9]{60,}+",
    "SG.": r"[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+",  # SendGrid
    "eyJ": r"[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+",  # JWT
}
"""Prefixes of keys, and what follows. Searching for each prefix is ten times faster than one pattern."""


def _token(start: str, rest: str) -> "re.Pattern[str]":
    # The look-behind follows the prefix: `re` is fast if a pattern begins with letters.
    return lazy_pattern(rf"{start}(?<![A-Za-z0-9_-]{start}){rest}")


_TOKENS = {
    **{f"k_{kind}_": _token(f"[spr]k_{kind}_", r"[A-Za-z0-9]{16,}+") for kind in ("live", "test")},  # Stripe
    **{start: _token(re.escape(start), rest) for start, rest in _KEY_FORMS.items()},
}
"""Patterns by a string that each match contains: the longer it is, the faster is the search for it."""
_GITHUB = _token("gh[oprsu]_", r"[A-Za-z0-9]{20,}+")
_MIN_TEXT_CHARS = 20
"""A shorter text of only letters and digits cannot be recognised as a secret."""
_MIN_TOKEN_CHARS = 15
_SEPARATOR = lazy_pattern(r"[ \t:=]")
"""One of these is in every header, every URL with a password, and between a name and its value."""

_QUOTE = r"""\\?["']?"""
_SCHEME = _any_case("(?:bearer|basic|digest|token|apikey)")
_AUTHORIZATION = lazy_pattern(
    rf"({_any_case('authorization')}{_QUOTE}[ \t]{{0,4}}+[:=][ \t]{{0,4}}+{_QUOTE})?"
    rf"({_SCHEME}[ \t]{{1,4}}+)([A-Za-z0-9._~+/=:-]{{8,}}+)"
)

# Up to the last "@": a password may contain one.
_URL_PASSWORD = lazy_pattern(r"""(://[^\s/:@'"]{0,100}+:)(?![${<*])[^\s/'"]{1,200}(?=@)""")

_NAME = _any_case(
    r"(?:p(?:ass(?:words?|wd|phrase)|wd|rivate[_-]?key)|s(?:ecret(?:[_-]?key)?|igning[_-]?key)|token"
    r"|a(?:pi|ccess|ccount)[_-]?key|authorization|c(?:redentials?|lient[_-]?secret)|encryption[_-]?key)"
)
_ASSIGNMENT = lazy_pattern(
    rf"({_NAME})({_QUOTE}[ \t]{{0,4}}+(?:=>|:=|[:=])[ \t]{{0,4}}+|[ \t]{{1,4}}+)"
    r"""(?:\\?"([^"\\\n]{1,500}+)\\?"|\\?'([^'\\\n]{1,500}+)\\?'|([^\s"'`,;&<>\\]{1,500}+))"""
)
_SECRET_KEY = lazy_pattern(rf"{_NAME}$")

_FLAG = lazy_pattern(r"(?:^|[\s'\"])--[A-Za-z0-9_-]*+$")
_FLAG_CHARS = 30
"""How far before a name the dashes of its flag may be."""
_CODE = lazy_pattern(r"[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)+$|[^()\[\]{}|]*+[()\[\]{}|]")
_PLACEHOLDER = lazy_pattern(
    r"(?:none|null|nil|true|false|undefined|required|optional|string|str|bytes|text|number|int|integer|any"
    r"|example|changeme|\W*+|(.)\1*)$",
    re.IGNORECASE,
)
_LIKELY_NAME = lazy_pattern(
    "pass|pwd|secret|token|key|cred|auth|self|args|value|config|settings|env", re.IGNORECASE
)


_added: set[str] = set()


def add_secret(secret: str) -> None:
    """Adds a secret that is not in the environment, such as a key from the keyring."""
    _added.add(secret)


def redact(text: str) -> str:
    """`text` with every secret replaced that is recognised by its form, its name or our environment."""
    return Redactor().text(text)


def redact_data(value: Any) -> Any:
    """The same for every text inside JSON-like data. All text below a key that names a secret is replaced."""
    return Redactor().data(value)


class Redactor:
    """For many texts: our environment is read once. `found` counts what was redacted, by kind."""

    def __init__(self, found: "Counter[str] | None" = None) -> None:
        self.found = found
        named = [name for name in os.environ if name.upper().endswith(_SECRET_SUFFIXES)]
        values = {os.environ.get(name, "").strip() for name in named} | _added
        # Longest first: one may be part of another.
        self._secrets = sorted(
            (value for value in values if len(value) >= _MIN_LENGTH), key=len, reverse=True
        )

    def _count(self, kind: str, before: str, after: str) -> str:
        if self.found is not None and after is not before and after != before:
            self.found[kind] += max(0, after.count(MARK) - before.count(MARK))
        return after

    def text(self, text: str) -> str:
        for value in self._secrets:
            text = self._count("known secret", text, text.replace(value, MARK))
        if len(text) < _MIN_TEXT_CHARS and text.isalnum():
            return text
        if len(text) < _MIN_TOKEN_CHARS and not _SEPARATOR.search(text):
            return text
        text = self._count("private key", text, _hide_private_keys(text))
        shown = _GITHUB.sub(MARK, text)
        for start, pattern in _TOKENS.items():
            if start in shown:
                shown = pattern.sub(MARK, shown)
        text = self._count("key or token", text, shown)
        if not _SEPARATOR.search(text):
            return text
        shown = self._count("authorization header", text, _AUTHORIZATION.sub(_hide_authorization, text))
        if "://" in shown:
            shown = self._count("password in an address", shown, _URL_PASSWORD.sub(rf"\1{MARK}", shown))
        return self._count("value of a secret's name", shown, _ASSIGNMENT.sub(_hide_assigned, shown))

    def data(self, value: Any, *, whole: bool = False) -> Any:
        if isinstance(value, str):
            named = whole and bool(value)
            return self._count("value of a secret's name", value, MARK) if named else self.text(value)
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return {key: self.data(item, whole=whole or bool(_SECRET_KEY.search(key))) for key, item in items}
        if isinstance(value, list | tuple):
            return [self.data(item, whole=whole) for item in cast("list[Any]", value)]
        return value


def _hide_private_keys(text: str) -> str:
    if "-----BEGIN " not in text:
        return text
    parts: list[str] = []
    position = 0
    while start := _KEY_START.search(text, position):
        parts += text[position : start.start()], MARK
        position = _end_of_key(text, start.end())
    return "".join(parts) + text[position:]


def _end_of_key(text: str, position: int) -> int:
    """The position after its end mark, or after the last line that looks like a key if the end is missing."""
    dashes = text.find("-----", position)
    if dashes >= 0 and (end := _KEY_END.match(text, dashes)):
        return end.end()
    while line := _KEY_LINE.match(text, position):
        position = line.end()
    return position


def _hide_authorization(match: "re.Match[str]") -> str:
    header, scheme, value = match[1] or "", match[2], match[3]
    # Without the header's name in front, "bearer" and "token" are ordinary words.
    is_secret = header or (scheme.lower().startswith("bearer") and _has_digit(value))
    return header + scheme + MARK if is_secret else match[0]


def _hide_assigned(match: "re.Match[str]") -> str:
    name, separator = match[1], match[2]
    if separator.isspace():
        before = match.string[max(0, match.start() - _FLAG_CHARS) : match.start()]
        if not _FLAG.search(before):
            return match[0]
        separator = "="
    quoted = match[3] or match[4]
    value = quoted or match[5]
    if not _is_secret(name, separator, value, bare=not quoted):
        return match[0]
    start = match.start(match.lastindex or 0) - match.start()
    return match[0][:start] + MARK + match[0][start + len(value) :]


def _is_secret(name: str, separator: str, value: str, *, bare: bool) -> bool:
    """Whether the value assigned to a name such as `password` is a secret, not code or prose."""
    if value.startswith(("$", "{", "<", "%", "*", MARK)) or _PLACEHOLDER.match(value):
        return False
    if bare and _CODE.match(value):
        return False
    if name.lower().startswith(("pass", "pwd")):
        if len(value) < 4 or (name.lower() == "pwd" and value.startswith(("/", "~", "."))):
            return False  # a working directory
        # `password: optional` is prose, `password=letmein` is not, `password=my_password` is code.
        return not bare or _has_digit(value) or not (separator[-1].isspace() or _LIKELY_NAME.search(value))
    if len(value) < 8 or " " in value or (bare and "_" in value and _LIKELY_NAME.search(value)):
        return False
    if _has_digit(value):
        return len(value) >= 16 or any(char.isalpha() for char in value)
    return not bare and len(value) >= 20 and value.isalnum() and value not in (value.lower(), value.upper())


def _has_digit(text: str) -> bool:
    return any(char.isdigit() for char in text)
