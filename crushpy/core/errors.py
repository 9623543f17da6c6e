"""Errors that users read: what went wrong, and what to do about it."""


class CrushpyError(Exception):
    """Base of all our errors. `hint` says what to do about it."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(CrushpyError):
    """Invalid usage: a flag, a setting, a name."""

    exit_code = 2


class SettingsError(UsageError):
    """A settings file, variable or value that cannot be used. Names file, key, value and what is allowed."""
