"""Web search by the vendor's own servers: what it costs, and how answers cite it."""

from crushpy.core.messages import Json
from crushpy.security.sanitize import one_line
from crushpy.util.read_json import as_text

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
