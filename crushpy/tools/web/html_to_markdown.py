"""Converts HTML to Markdown in a process of its own: a hostile page can keep a parser busy forever.

HTML comes on stdin, its address as the argument; out comes a line that says whether it was truncated, the
title on a line, then the markdown. It is run without crushpy's folder on its path, so it imports nothing of
ours.
"""

import re
import sys
from contextlib import suppress
from urllib.parse import urljoin

MAX_HTML_CHARS = 1_000_000
"""Without scripts and styles. Larger pages are truncated: a megabyte takes seconds."""
TRUNCATED = "truncated"
_MAX_MEMORY_BYTES = 1 << 30

_SCRIPT_START = re.compile(r"<(?:script|style)\b", re.IGNORECASE)
_SCRIPT_END = re.compile(r"</(?:script|style)\s*>", re.IGNORECASE)
_REMOVED_TAGS = ("script", "style", "nav", "noscript", "template", "svg", "iframe", "button", "title")


def to_markdown(html: str, address: str) -> tuple[str, str]:
    """The title and the content of a page without scripts; links are made absolute."""
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    soup = BeautifulSoup(html, "html.parser")
    title = " ".join(soup.title.get_text().split()) if soup.title else ""
    for tag in soup.find_all(_REMOVED_TAGS):
        tag.decompose()
    for image in soup.find_all("img", src=re.compile(r"^\s*data:", re.IGNORECASE)):
        image.decompose()
    for name, attribute in (("a", "href"), ("img", "src")):
        for tag in soup.find_all(name, attrs={attribute: True}):
            with suppress(ValueError):  # not an address
                tag[attribute] = urljoin(address, str(tag[attribute]))
    converter = MarkdownConverter(heading_style="ATX", escape_asterisks=False, escape_underscores=False)
    text = converter.convert_soup(soup)
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return title, re.sub(r"\n{3,}", "\n\n", lines).strip()


def without_code(html: str) -> str:
    """`html` without its scripts and styles; in one pass, however broken it is."""
    kept: list[str] = []
    position = 0
    while start := _SCRIPT_START.search(html, position):
        kept.append(html[position : start.start()])
        end = _SCRIPT_END.search(html, start.end())
        if end is None:
            return "".join(kept)
        position = end.end()
    return "".join((*kept, html[position:]))


def main() -> None:
    with suppress(ImportError, OSError, ValueError):  # not every system has this limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    sys.setrecursionlimit(20_000)  # pages nest deeply, and the converter calls itself for each level
    html = without_code(sys.stdin.buffer.read().decode())
    title, text = to_markdown(html[:MAX_HTML_CHARS], sys.argv[1])
    truncated = TRUNCATED if len(html) > MAX_HTML_CHARS else ""
    # `replace`: a page may contain lone surrogates, and our own modules cannot be imported here.
    sys.stdout.buffer.write(f"{truncated}\n{title}\n{text[:MAX_HTML_CHARS]}".encode(errors="replace"))


if __name__ == "__main__":
    main()
