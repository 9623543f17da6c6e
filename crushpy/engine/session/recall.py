"""The tool `recall`: finds stored messages by words or id, except those in the current request."""

from collections.abc import Callable, Collection

from crushpy.context.render import message_text
from crushpy.context.tags import own_words
from crushpy.core.errors import UsageError
from crushpy.storage.store import Store

MAX_HITS = 8
MAX_CHARS = 24_000


async def recall(
    store: Store, session_id: str, in_view: Callable[[], Collection[str]], query: str, message_id: str
) -> str:
    """Text for the model. Messages of the current request are not repeated."""
    shown = in_view()
    try:
        if message_id:
            text = message_text(await store.messages.get(message_id, within=session_id))
            more = f"\n[... {len(text) - MAX_CHARS} chars more; recall(query=...) finds places in them]"
            return text[:MAX_CHARS] + (more if len(text) > MAX_CHARS else "")
        # Paths below the working directory are relative, as the model mostly writes them.
        here = (await store.sessions.find(session_id)).cwd.rstrip("/")
        words = query.replace(f"{here}/", "") or query if here else query
        hits = await store.search.find(words, within=session_id, limit=MAX_HITS + len(shown))
    except UsageError as error:
        return str(error)
    fresh = [hit for hit in hits if hit.message_id not in shown][:MAX_HITS]
    if not fresh:
        seen = " The matches are already in the current request." if hits else ""
        return f"Nothing earlier matches {query!r}.{seen} Try other or fewer words."
    blocks = [
        f"[{hit.role} {hit.message_id}, session {hit.session_id}]\n{own_words(hit.snippet)}" for hit in fresh
    ]
    return "\n\n".join(blocks) + "\n\nread one whole with recall(message_id=...)"
