"""The tags that mark what crushpy wrote itself. Text inside them can neither close nor forge them."""

import re
from collections.abc import Callable

OWN_TAGS = (
    "summary",
    "evidence",
    "request",
    "quotes",
    "context_status",
    "note",
    "instructions",
    "transcript",
)
_FORGED = re.compile(rf"<(?=\s*/?\s*({'|'.join(OWN_TAGS)})\b)", re.IGNORECASE)


def safe(text: str) -> str:
    """`text` with every tag of ours defused. Everything else stays as it is, so that code reads as code."""
    return _FORGED.sub("&lt;", text)


def element(tag: str, text: str, **attributes: str) -> str:
    """`text`, defused, inside one of our tags."""
    marks = "".join(f' {name}="{value}"' for name, value in attributes.items())
    return f"<{tag}{marks}>\n{safe(text)}\n</{tag}>"


def quoted(text: str, limit: int, count: Callable[[str], int], message_id: str) -> str:
    """`text` as it is, or its head and tail with the id under which the whole is found."""
    size = count(text)
    if size <= limit:
        return text
    keep = max(40, len(text) * limit // size)
    head, tail = keep * 2 // 3, keep // 3
    return (
        f"{text[:head]}\n[... {len(text) - head - tail} chars cut; recall {message_id} ...]\n{text[-tail:]}"
    )
