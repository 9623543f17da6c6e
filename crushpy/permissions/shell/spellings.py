"""The words that a command line may spell, however it does so: quotes, escapes, braces, defaults, globs.

For a line that cannot be read for certain. It finds too much rather than too little, and runs nothing.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice, product

_MOST = 128
"""Ways to spell one word that are looked at."""
_ESCAPES = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))
_HEX = "[0-9a-fA-F]"
_ESCAPE = re.compile(
    rf"\\(?:x({_HEX}{{1,2}})|u({_HEX}{{1,4}})|U({_HEX}{{1,8}})|([0-7]{{1,3}})|(.))", re.DOTALL
)
_ANSI_STRING = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_EXPANSION = re.compile(r"\$(?:\{([^{}$`]*)\}|(\w+|[@*]))")
_NAME = re.compile(r"[!#]?(\w+|[@*])(?::?[-=+?](.*))?", re.DOTALL)
_ASSIGNED = re.compile(r"(?<![\w$])([A-Za-z_]\w*)=('[^']*'|\"[^\"]*\"|[^\s;&|<>()'\"]*)")
_LOOP = re.compile(r"\bfor\s+(\w+)\s+in\s+([^;\n]*)")
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(-?\w+)\.\.(-?\w+)(?:\.\.-?\d+)?")
_CHUNK = re.compile(r"[\s;&|<>()`]+")
_TOKEN = re.compile(r"[^\w.+:/@*?\[\]!^-]+")
_FIRST_MARK = 0xE000
_LAST_MARK = 0xF8FF


def spells(text: str, words: frozenset[str]) -> frozenset[str]:
    """Those of `words` that some word of `text` may turn out to be, folders aside."""
    found: set[str] = set()
    globs: set[str] = set()
    for token in _tokens(text):
        name = token.rpartition("/")[2]
        found |= {token, name} & words
        if re.search(r"[*?\[]", name) and (token.startswith("/") or re.search(r"\w", name)):
            globs.add(name)
    return frozenset(found | {word for word in words for glob in globs if fnmatchcase(word, glob)})


def _tokens(text: str) -> Iterator[str]:
    text = text.replace("\\\n", "")
    for variant in dict.fromkeys((_plain_strings(text), _decoded(text))):
        values = _assigned(variant)
        marked, choices = _marked(variant, values)
        apart = r"[\W_]+" if "IFS" in values else ""
        for chunk in dict.fromkeys(_CHUNK.split(marked)):
            for spelled in _spelled(re.sub(r"['\"\\]", "", chunk), choices):
                for piece in _CHUNK.split(spelled):
                    yield piece
                    yield from _TOKEN.split(piece)
                    if apart:
                        yield from re.split(apart, piece)


def _plain_strings(text: str) -> str:
    return _ANSI_STRING.sub(lambda found: _decoded(found[1]), text).replace('$"', '"')


def _decoded(text: str) -> str:
    """`text` with the escapes of `$'...'`, printf and echo -e resolved."""

    def letter(found: re.Match[str]) -> str:
        for digits, base in ((found[1], 16), (found[2], 16), (found[3], 16), (found[4], 8)):
            if digits:
                code = int(digits, base)
                return chr(code) if 0 < code < 0x110000 else ""
        return _ESCAPES.get(found[5], found[5])

    return _ESCAPE.sub(letter, text.replace("$'", "'"))


def _assigned(text: str) -> dict[str, list[str]]:
    """What the line itself gives each variable."""
    values: dict[str, list[str]] = {}
    for name, value in _ASSIGNED.findall(text):
        values.setdefault(name, []).append(value.strip("'\""))
    for name, words in _LOOP.findall(text):
        values.setdefault(name, []).extend(words.split())
    return values


def _marked(text: str, values: dict[str, list[str]]) -> tuple[str, dict[str, list[str]]]:
    """`text` with a mark for each expansion, and what each mark may stand for. Inner ones come first."""
    choices: dict[str, list[str]] = {}

    def mark(found: re.Match[str]) -> str:
        if _FIRST_MARK + len(choices) > _LAST_MARK:
            return ""
        inside = found[1] if found[1] is not None else found[2]
        plain = _NAME.fullmatch(inside)
        others = [plain[2]] if plain else re.split(r"[/:%#^,@]", inside)
        sign = chr(_FIRST_MARK + len(choices))
        choices[sign] = ["", *values.get(plain[1] if plain else "", ()), *filter(None, others)]
        return sign

    for _ in range(6):
        text, count = _EXPANSION.subn(mark, text)
        if not count:
            break
    return text, choices


def _spelled(chunk: str, choices: dict[str, list[str]]) -> Iterator[str]:
    """The ways to spell one word, as many as are looked at."""
    done: set[str] = set()
    waiting = [chunk]
    while waiting and len(done) < _MOST:
        text = waiting.pop()
        mark = next((sign for sign in text if sign in choices), "")
        if mark:
            waiting.extend(text.replace(mark, choice, 1) for choice in choices[mark][:_MOST])
        elif text not in done:
            done.add(text)
            waiting.extend(islice(_without_braces(text), _MOST))
    yield from done


def _without_braces(text: str) -> Iterator[str]:
    """`text` with its innermost braces resolved, one word of theirs at a time."""
    parts: list[list[str]] = []
    end = 0
    for found in _BRACES.finditer(text):
        words = _brace_words(found[1])
        if words:
            parts += [[text[end : found.start()]], words]
            end = found.end()
    if parts:
        yield from ("".join(each) for each in product(*parts, [text[end:]]))


def _brace_words(inside: str) -> list[str]:
    if "," in inside:
        return inside.split(",")
    span = _RANGE.fullmatch(inside)
    if span is None:
        return []
    first, last = span[1], span[2]
    if len(first) == len(last) == 1 and not (first + last).isdigit():
        low, high = sorted((ord(first), ord(last)))
        return [chr(code) for code in range(low, high + 1)][:_MOST]
    return []
