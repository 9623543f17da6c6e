"""The errors a person is meant to read: what went wrong, and the way out."""


class CrushpyError(Exception):
    """Base of all our own errors. `hint` is the way out, in words."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


def mistake(error: Exception) -> CrushpyError:
    """What to say of an error that nobody foresaw. Its text may hold anything, keys included."""
    from crushpy.redact import redact

    return CrushpyError(
        redact(f"crushpy made a mistake: {type(error).__name__}: {error}"),
        "What was stored is intact. The log file tells more; see `crushpy doctor` for its place.",
    )


class UsageError(CrushpyError):
    """What was asked for makes no sense: a flag, a setting, a name."""

    exit_code = 2


class SettingsError(UsageError):
    """A settings file, variable or value that cannot be used. Names file, key, value and what is allowed."""
