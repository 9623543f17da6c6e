"""Signed parts of a reply, and their position among its text and calls, so that they are sent back unchanged.

A reply is stored as its thinking, its text and its calls, in this order, and is nearly always received in it.
A part that arrived later records how much text and how many calls preceded it. All functions are pure.
"""

from collections.abc import Iterator

from crushpy.core.messages import BOUND_PREFIX, Image, Json, Message, Text, Thinking, ToolCall
from crushpy.llm.protocol import Request
from crushpy.security.sanitize import one_line
from crushpy.util.read_json import as_text

EMPTY = "(empty)"
"""Replaces a blank text, which servers would refuse."""
POSITION = "after"
"""Key of the recorded position: [characters of text, number of calls]."""


def record_position(part: Json, text: int, calls: int) -> Json:
    """`part` with its position: after `text` characters and `calls` calls."""
    return {**part, POSITION: [text, calls]} if text or calls else part


def prompt_parts(message: Message) -> list[Text | Image]:
    """What a prompt shows, in order. Blank texts are left out: most servers refuse them."""
    shown = [part for part in message.parts if isinstance(part, Text | Image)]
    return [part for part in shown if isinstance(part, Image) or part.text.strip()] or [Text(EMPTY)]


def opaque_blocks(message: Message, kinds: frozenset[str]) -> list[Json]:
    """The signed parts of these kinds."""
    blocks = (block for part in message.parts if isinstance(part, Thinking) for block in part.opaque)
    return [block for block in blocks if block.get("type") in kinds]


def ordered_parts(message: Message, kinds: frozenset[str]) -> Iterator[str | ToolCall | Json]:
    """A reply's texts, calls and signed parts of these kinds, in the order in which they were received."""
    text, calls = message.text, message.calls
    text_end, call_end = 0, 0
    for block in opaque_blocks(message, kinds):
        chars, count = block.get(POSITION) or (0, 0)
        if chars > text_end:
            yield text[text_end:chars]
            text_end = chars
        yield from calls[call_end:count]
        call_end = max(call_end, count)
        yield {key: value for key, value in block.items() if key not in (POSITION, BOUND_PREFIX)}
    if text[text_end:]:
        yield text[text_end:]
    yield from calls[call_end:]


def accepts_signed_parts(message: Message, request: Request) -> bool:
    """Whether the signed parts of a reply are sent back: only the model that made them accepts them."""
    return request.return_thinking and message.model == request.model


def sends_signed_parts(request: Request) -> bool:
    return any(
        isinstance(part, Thinking | ToolCall) and part.opaque
        for message in request.messages
        if accepts_signed_parts(message, request)
        for part in message.parts
    )


# --- web search by the vendor's own servers: what it costs, and how answers cite it


WEB_SEARCH = "web_search"
MAX_SEARCHES = 5
"""Searches that one reply may make, if the vendor has a limit."""
SEARCH_COST, GEMINI_SEARCH_COST = 0.01, 0.014
"""US dollars a search, beside the tokens."""


def cite(source: Json, cited: set[str], url_key: str = "url") -> str:
    """A link to a page that an answer is taken from; empty if it was cited before, or is not a page."""
    url = one_line(as_text(source.get(url_key)))
    if url in cited or not url.startswith(("https://", "http://")):
        return ""
    cited.add(url)
    title = one_line(as_text(source.get("title"))).translate({ord(letter): "" for letter in "[]"})
    return f" ([{title or url}](<{url.replace('>', '%3E')}>))"
