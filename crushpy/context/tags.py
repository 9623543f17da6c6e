"""The tags that mark what crushpy wrote itself. Text inside them can neither close nor forge them."""

import re
import unicodedata
from collections.abc import Callable, Collection
from functools import lru_cache

from crushpy.core.own_tags import OWN_TAGS
from crushpy.util.lazy_pattern import lazy_pattern

_OPENERS = "<＜﹤‹〈⟨❬❮˂ᐸ"
"""Characters that look like the beginning of a tag."""
_SLASHES = "/\\／＼∕⁄╱⧸"
# Most code is excluded at once by an ASCII letter that begins none of our tags.
_FIRST = "".join(sorted({tag[0] + tag[0].upper() for tag in OWN_TAGS}))
_CANDIDATE = lazy_pattern(rf"[{_OPENERS}](?=[^A-Za-z]|[{_FIRST}])")
_CHAT_MARK = lazy_pattern(r"<(?=[|｜][\w▁ -]{1,40}[|｜]>)")
"""Control marks of chat templates, which some servers interpret inside text."""
_LOOKALIKES = {
    ord(twin): letter
    for letter, ones in {
        "a": "аαɑ", "c": "сϲ", "d": "ԁ", "e": "еεҽ", "i": "іιɪ", "m": "мṃ", "n": "пηո", "o": "оοօ",
        "p": "рρ", "q": "ԛ", "r": "гʀ", "s": "ѕꜱ", "t": "тτ", "u": "υսᴜ", "v": "ѵν", "y": "уγ", "_": "＿",
    }.items()
    for twin in ones
}  # fmt: skip
"""Letters of other scripts that look like the Latin ones our tags are made of."""
_LONGEST = max(map(len, OWN_TAGS))
_HEADER = lazy_pattern(
    r"((?:^|[\r\v\f\x1c-\x1e\x85\u2028\u2029])[ \t]*)"
    r"\[(?=[ \t]*(?:(?:user|assistant|tool|system|crushpy|calls)\b|\w+ (?:returned|failed);))",
    re.IGNORECASE | re.MULTILINE,
)
"""What `render.py` puts before each message of a transcript."""
Count = Callable[[str], int]
"""The tokens of a text."""


def safe(text: str, tags: Collection[str] = OWN_TAGS) -> str:
    """`text` with every tag of ours escaped. Everything else is unchanged, so that code stays readable."""
    text = _CHAT_MARK.sub("&lt;", text)
    return _CANDIDATE.sub(lambda found: "&lt;" if _tag_at(text, found.end()) in tags else found[0], text)


def _tag_at(text: str, at: int) -> str:
    """The name of the tag after an opener, regardless of case, spacing or letters."""
    while at < len(text) and (text[at].isspace() or text[at] in _SLASHES or not _plain(text[at])):
        at += 1
    name = ""
    while at < len(text) and len(name) <= _LONGEST:
        letters = _plain(text[at])
        if letters and not re.fullmatch(r"\w+", letters):
            break
        name += letters
        at += 1
    return name


@lru_cache(maxsize=4096)
def _plain(char: str) -> str:
    """`char` without case, width and accents; empty for invisible characters."""
    shown = unicodedata.normalize("NFKD", char)
    hidden = ("Cf", "Cc", "Mn", "Me")
    kept = "".join(c for c in shown if c.isspace() or unicodedata.category(c) not in hidden)
    return kept.casefold().translate(_LOOKALIKES)


def own_words(text: str) -> str:
    """`text` for a transcript: no line of it can be mistaken for the header of another message."""
    return _HEADER.sub(r"\1\\[", text) if "[" in text else text


def element(tag: str, text: str, **attributes: str) -> str:
    """`text`, escaped, inside one of our tags."""
    marks = "".join(f' {name}="{attribute(value)}"' for name, value in attributes.items())
    return f"<{tag}{marks}>\n{safe(text)}\n</{tag}>"


def attribute(value: str) -> str:
    """`value` as it stands in a tag."""
    return " ".join(value.replace('"', "'").replace("<", "&lt;").replace(">", "&gt;").split())


def quoted(text: str, limit: int, count: Count, source: str) -> str:
    """`text`, or its head and tail with the call that reads all of it."""
    ends = text if len(text) <= 24 * limit else text[: 16 * limit] + text[-8 * limit :]
    size = count(ends)  # of a very long text the ends are enough
    if size <= limit:
        ends, size = text, count(text) if ends is not text else size
    if size <= limit:
        return text
    keep = max(40, len(ends) * limit // size)
    head, tail = keep * 2 // 3, keep // 3
    return f"{text[:head]}\n[... {len(text) - head - tail} chars truncated; {source} ...]\n{text[-tail:]}"
