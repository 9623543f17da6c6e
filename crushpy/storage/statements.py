"""The statements about sessions, messages and the calls that were begun."""

from crushpy.storage.conversation_table import DELETED
from crushpy.storage.system_prompts import SESSIONS

# --- sessions ------------------------------------------------------------------------------------------

THIS_SESSION = f"id = :session AND kind != '{DELETED}'"
SESSION_EXISTS = f"SELECT 1 FROM session WHERE {THIS_SESSION}"  # noqa: S608  # our own words
SESSION = f"{SESSIONS} WHERE {THIS_SESSION}"
SESSIONS_FROM = f"{SESSIONS} WHERE id >= :start AND kind != '{DELETED}' ORDER BY id LIMIT :many"

# --- messages and tool runs ----------------------------------------------------------------------------

_USAGE = """
    input_tokens = input_tokens + :input, output_tokens = output_tokens + :output,
    cache_read_tokens = cache_read_tokens + :cache_read,
    cache_write_tokens = cache_write_tokens + :cache_write, cost = cost + :price
"""
ADD_USAGE = f"UPDATE session SET {_USAGE} WHERE {THIS_SESSION}"  # noqa: S608
COUNT_MESSAGES = f"""
    UPDATE session SET {_USAGE}, updated_at = :now, message_count = message_count + :many
    WHERE {THIS_SESSION}
"""  # noqa: S608
DROP_DRAFT = "DELETE FROM draft WHERE session_id = :session"
INSERT_MESSAGE = """
    INSERT INTO message (id, session_id, seq, role, parts, model, usage, finish, tokens, created_at)
    VALUES (:id, :session_id, (SELECT coalesce(max(seq), 0) + 1 FROM message WHERE session_id = :session_id),
        :role, CAST(:parts AS TEXT), :model, :usage, :finish, :tokens, :created_at)
"""
MESSAGES = "SELECT {} FROM message WHERE session_id = :session ORDER BY seq"

OPEN_RUNS = "SELECT call_id FROM tool_run WHERE session_id = :session AND ended_at IS NULL"
# Where a provider repeats an id, the result belongs to the run that was begun last.
CLOSE_RUN = """
    UPDATE tool_run SET ended_at = :now, is_error = :failed, result_id = :answer
    WHERE number = (SELECT max(number) FROM tool_run
        WHERE session_id = :session AND call_id = :call AND ended_at IS NULL)
"""
