"""Names in text: paths, identifiers, numbers and URLs, which cannot be guessed once they are forgotten."""

from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path

from crushpy.util.lazy_pattern import lazy_pattern

PATH, IDENTIFIER, NUMBER, URL = "path", "identifier", "number", "url"
MIN_IDENTIFIER_CHARS = 6
MAX_NAME_CHARS = 200

_URL = lazy_pattern(r"https?://[^\s\"'<>)\]}`\\]+")
_TOKEN = lazy_pattern(r"[\w@~/.][\w@~/.+-]*")
_FILE = lazy_pattern(
    r"[\w@+-][\w@+.-]*\.(?:py|pyi|js|jsx|mjs|cjs|ts|tsx|go|rs|rb|java|kt|c|h|cc|cpp|hpp|cs|swift|php|sh|sql|md"
    r"|mdx|rst|txt|json|jsonl|toml|yaml|yml|ini|cfg|env|lock|html|css|scss|svg|png|xml|csv|proto|vue|svelte)"
)
_VERSION = lazy_pattern(r"v?\d+\.\d+\.\d+[\w.+-]*|v\d+\.\d+")
_HASH = lazy_pattern(r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}")
_DIGITS = lazy_pattern(r"\d{4,}")
_IDENTIFIER = lazy_pattern(r"[A-Za-z_][\w-]*")
_TWO_PARTS = lazy_pattern(r"[a-z\d][A-Z]|[A-Za-z\d][_-]+[A-Za-z\d]|[A-Z]{2}[a-z]")
_WORD = lazy_pattern(r"[\w-]+")


@cache
def generic_names() -> frozenset[str]:
    """Names of many projects, which say nothing about one."""
    return frozenset(Path(__file__).with_name("generic_names.txt").read_text("utf-8").split())


def names_in(text: str) -> Iterator[tuple[str, str]]:
    """Each name in `text` with its kind, as often as it occurs."""
    if "://" in text:
        for url in _URL.findall(text):
            yield url.rstrip(".,:;"), URL
        text = _URL.sub(" ", text)
    for token in _TOKEN.findall(text):
        yield from _names_of(token)


def count_names(text: str) -> Counter[str]:
    """How often each name occurs in `text`."""
    return Counter(name for name, _ in names_in(text))


def words_in(text: str) -> set[str]:
    """Everything in `text` that counts as shown: names, and the parts of paths and dotted names."""
    parts = set(text.split())
    long = {part for part in parts if len(part) > MAX_NAME_CHARS}  # would fill the cache
    found = set(chain(*map(_shown_by, parts - long), *map(_shown_by.__wrapped__, long)))
    found.update(_URL.findall(text) if "://" in text else ())
    return found


@lru_cache(maxsize=50_000)
def _shown_by(part: str) -> tuple[str, ...]:
    names = chain.from_iterable(map(_names_of, _TOKEN.findall(part)))
    return (*_WORD.findall(part), *(name for name, _ in names))


@lru_cache(maxsize=50_000)
def _names_of(token: str) -> tuple[tuple[str, str], ...]:
    token = token.removeprefix("./").strip(".-+").rstrip("/")
    if len(token) > MAX_NAME_CHARS or len(token) < 4:
        return ()
    numbers = (_VERSION, _HASH, _DIGITS) if any(map(str.isdigit, token)) else ()
    if any(pattern.fullmatch(token) for pattern in numbers):
        return ((token, NUMBER),)
    if "/" in token:
        is_path = "/" in token[1:] or "." in token  # `/span` is a tag, `/compact` a command
        return ((token, PATH),) if is_path and len(token) > 4 else ()
    if "." in token and _FILE.fullmatch(token):
        return ((token, PATH),)
    return tuple((part, IDENTIFIER) for part in token.split(".") if is_identifier(part))


def is_identifier(word: str) -> bool:
    """Whether `word` is a name of several parts: camelCase, snake_case or kebab-case."""
    return (
        len(word) >= MIN_IDENTIFIER_CHARS
        and not (word.isalpha() and word.islower())
        and _IDENTIFIER.fullmatch(word) is not None
        and _TWO_PARTS.search(word) is not None
    )


class ShownNames:
    """The names that some texts show. A path is shown inside a longer path, too."""

    def __init__(self, *texts: str) -> None:
        self._words = set[str]()
        self._paths = ""
        for text in texts:
            self.add(words_in(text))

    def add(self, words: set[str]) -> None:
        longer = [f"/{word.strip('/')}/" for word in words - self._words if "/" in word]
        self._paths = "\n".join((self._paths, *longer)) if longer else self._paths
        self._words |= words

    def __contains__(self, name: str) -> bool:
        if name in self._words:
            return True
        return ("/" in name or "." in name) and f"/{name.strip('/')}/" in self._paths
