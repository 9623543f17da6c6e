"""What to say of an error that nobody foresaw."""

from crushpy.core.errors import CrushpyError


def unexpected(error: Exception) -> CrushpyError:
    """The error for people to read. Its text may hold anything, keys included."""
    from crushpy.security.redact import redact

    return CrushpyError(
        redact(f"crushpy made a mistake: {type(error).__name__}: {error}"),
        "What was stored is intact. The log file tells more; see `crushpy doctor` for its place.",
    )
