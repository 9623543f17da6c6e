"""Takes secrets out of text that leaves crushpy's own storage: exports, and what is carried to a new session.

Every pattern is linear, so that no text can make it slow: what repeats is bounded, possessive, or can be
read in one way only. Possessive are single characters alone: over groups, Python before 3.11.5 errs.
"""

import os
import re
from typing import Any, cast

MARK = "[redacted]"

_VARIABLES = ("_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_ACCESS_KEY")
_MIN_VARIABLE = 8


def _any_case(pattern: str) -> str:
    """`pattern` for small and large letters alike. Several times faster than re.IGNORECASE."""
    return re.sub("[a-z]", lambda letter: f"[{letter[0].upper()}{letter[0]}]", pattern)


_KEY_START = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINE = re.compile(r"\s*+(?:\\[nr]\s*+)*[A-Za-z0-9+/=]{16,}+")

_TOKEN = re.compile(
    r"(?<![A-Za-z0-9_-])(?:"
    r"sk-(?=[A-Za-z_-]*+[0-9])[A-Za-z0-9_-]{20,}+"  # OpenAI, Anthropic, OpenRouter; a digit, unlike CSS names
    r"|(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{16,}+"  # Stripe
    r"|gh[opsur]_[A-Za-z0-9]{20,}+|github_pat_[A-Za-z0-9_]{20,}+|glpat-[A-Za-z0-9_-]{20,}+"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"  # AWS
    r"|xox[a-z]-[A-Za-z0-9-]{10,}+|xapp-[A-Za-z0-9-]{20,}+"  # Slack
    r"|AIza[A-Za-z0-9_-]{30,}+|ya29\.[A-Za-z0-9_-]{20,}+|GOCSPX-[A-Za-z0-9_-]{20,}+"  # Google
    r"|hf_[A-Za-z0-9]{30,}+|gsk_[A-Za-z0-9]{30,}+|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}+"
    r"|(?:xai|pplx|tvly)-[A-Za-z0-9_-]{20,}+|r8_[A-Za-z0-9]{30,}+|dop_v1_[a-f0-9]{60,}+"
    r"|SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+"  # SendGrid
    r"|eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+"  # JWT
    r")"
)

_QUOTE = r"""\\?["']?"""
_SCHEME = _any_case("(?:bearer|basic|digest|token|apikey)")
_AUTHORIZATION = re.compile(
    rf"({_any_case('authorization')}{_QUOTE}[ \t]{{0,4}}+[:=][ \t]{{0,4}}+{_QUOTE})?"
    rf"({_SCHEME}[ \t]{{1,4}}+)([A-Za-z0-9._~+/=:-]{{8,}}+)"
)

# Up to the last "@": a password may hold one.
_URL_PASSWORD = re.compile(r"""(://[^\s/:@'"]{0,100}+:)([^\s/'"]{1,200})(?=@)""")

_NAME = _any_case(
    r"(?:p(?:ass(?:words?|wd|phrase)|wd|rivate[_-]?key)|s(?:ecret(?:[_-]?key)?|igning[_-]?key)|token"
    r"|a(?:pi|ccess|ccount)[_-]?key|authorization|c(?:redentials?|lient[_-]?secret)|encryption[_-]?key)"
)
_ASSIGNMENT = re.compile(
    rf"({_NAME})({_QUOTE}[ \t]{{0,4}}+(?:=>|:=|[:=])[ \t]{{0,4}}+|[ \t]{{1,4}}+)"
    r"""(?:\\?"([^"\\\n]{1,500}+)\\?"|\\?'([^'\\\n]{1,500}+)\\?'|([^\s"'`,;&<>\\]{1,500}+))"""
)
_SECRET_KEY = re.compile(rf"{_NAME}$")

_FLAG = re.compile(r"(?:^|[\s'\"])--[A-Za-z0-9_-]*+$")
_FLAG_REACH = 30
"""How far before a name the dashes of its flag may be."""
_CODE = re.compile(r"[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)+$|[^()\[\]{}|]*+[()\[\]{}|]")
_PLACEHOLDER = re.compile(
    r"(?:none|null|nil|true|false|undefined|required|optional|string|str|bytes|text|number|int|integer|any"
    r"|example|changeme|\W*+|(.)\1*)$",
    re.IGNORECASE,
)
_NAME_OF_ONE = re.compile(
    "pass|pwd|secret|token|key|cred|auth|self|args|value|config|settings|env", re.IGNORECASE
)


_hidden: set[str] = set()


def hide_from_now_on(secret: str) -> None:
    """A secret that is in no variable of the environment: a key from the keyring."""
    _hidden.add(secret)


def redact(text: str) -> str:
    """`text` with every secret replaced that shows by its look, by its name or by our own environment."""
    for value in _known_secrets():
        text = text.replace(value, MARK)
    text = _hide_private_keys(text)
    text = _TOKEN.sub(MARK, text)
    text = _AUTHORIZATION.sub(_hide_authorization, text)
    text = _URL_PASSWORD.sub(_hide_url_password, text)
    return _ASSIGNMENT.sub(_hide_assigned, text)


def redact_data(value: Any, *, whole: bool = False) -> Any:
    """The same for every text inside JSON-like data. Below a key that names a secret, all text goes."""
    if isinstance(value, str):
        return MARK if whole and value else redact(value)
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: redact_data(item, whole=whole or bool(_SECRET_KEY.search(key))) for key, item in items}
    if isinstance(value, list | tuple):
        return [redact_data(item, whole=whole) for item in cast("list[Any]", value)]
    return value


def _known_secrets() -> list[str]:
    """Longest first: one may be part of another."""
    values = {value.strip() for name, value in os.environ.items() if name.upper().endswith(_VARIABLES)}
    return sorted((value for value in values | _hidden if len(value) >= _MIN_VARIABLE), key=len, reverse=True)


def _hide_private_keys(text: str) -> str:
    if "-----BEGIN " not in text:
        return text
    kept: list[str] = []
    place = 0
    while start := _KEY_START.search(text, place):
        kept += text[place : start.start()], MARK
        place = _end_of_key(text, start.end())
    return "".join(kept) + text[place:]


def _end_of_key(text: str, place: int) -> int:
    """Behind its end mark, or as far as it looks like a key where the end was cut off."""
    dashes = text.find("-----", place)
    if dashes >= 0 and (end := _KEY_END.match(text, dashes)):
        return end.end()
    while line := _KEY_LINE.match(text, place):
        place = line.end()
    return place


def _hide_authorization(match: "re.Match[str]") -> str:
    header, scheme, value = match[1] or "", match[2], match[3]
    # Without the header's name in front, "bearer" and "token" are words like others.
    is_secret = header or (scheme.lower().startswith("bearer") and _has_digit(value))
    return header + scheme + MARK if is_secret else match[0]


def _hide_url_password(match: "re.Match[str]") -> str:
    is_variable = match[2].startswith(("$", "{", "<", "*"))
    return match[0] if is_variable else match[1] + MARK


def _hide_assigned(match: "re.Match[str]") -> str:
    name, separator = match[1], match[2]
    if separator.isspace():
        before = match.string[max(0, match.start() - _FLAG_REACH) : match.start()]
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
    """Whether what is given to a name such as `password` is the thing itself: not code, not prose."""
    if value.startswith(("$", "{", "<", "%", "*", MARK)) or _PLACEHOLDER.match(value):
        return False
    if bare and _CODE.match(value):
        return False
    if name.lower().startswith(("pass", "pwd")):
        if len(value) < 4 or (name.lower() == "pwd" and value.startswith(("/", "~", "."))):
            return False  # a working directory
        # `password: optional` is prose, `password=letmein` is not, `password=my_password` is code.
        return not bare or _has_digit(value) or not (separator[-1].isspace() or _NAME_OF_ONE.search(value))
    if len(value) < 8 or " " in value or (bare and "_" in value and _NAME_OF_ONE.search(value)):
        return False
    if _has_digit(value):
        return len(value) >= 16 or any(char.isalpha() for char in value)
    return not bare and len(value) >= 20 and value.isalnum() and value not in (value.lower(), value.upper())


def _has_digit(text: str) -> bool:
    return any(char.isdigit() for char in text)
