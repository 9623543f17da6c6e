"""Saves the messages of a session whose database was lost while it was open."""

import os
import time

import msgspec

from crushpy.core.messages import counted
from crushpy.core.paths import private_dir
from crushpy.engine.session.export import session_as_json
from crushpy.engine.session.session import LiveSession
from crushpy.security.sanitize import encodable, safe_json
from crushpy.storage.records import DatabaseLost


def rescued(session: LiveSession, error: DatabaseLost) -> DatabaseLost:
    """Appends the messages in memory to a file beside the database, each once. Returns the error to show."""
    messages = [one for one in (*session.history, *session.unstored) if one.id not in session.rescued]
    if not messages:
        return error
    lines = [{"type": "session", **session_as_json(session.info)}]
    lines += [
        {"type": "message", "session_id": session.info.id, **msgspec.to_builtins(one)} for one in messages
    ]
    database = session.database
    file = database.with_name(f"{database.name}.rescued-{time.strftime('%Y%m%d-%H%M%S')}.jsonl")
    try:
        private_dir(file.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with open(os.open(file, flags, 0o600), "wb") as out:
            out.writelines(safe_json(msgspec.json.encode(encodable(line))) + b"\n" for line in lines)
            out.flush()
            os.fsync(out.fileno())
    except OSError as failure:
        text = f"{error.message}. Its messages could not be saved to {file}: {failure.strerror or failure}"
        return DatabaseLost(text, error.hint)
    session.rescued |= {one.id for one in messages}
    saved = counted(len(messages), "message")
    return DatabaseLost(f"{error.message}. The turn was stopped, and {saved} saved to {file}", error.hint)
