"""Turns our errors into messages and exit codes."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from crushpy.cli.streams import forget_output, prepare_streams
from crushpy.core.errors import CrushpyError


@contextmanager
def reporting_errors() -> Generator[None]:
    """Whatever ends the command inside, its output is written and the user knows why."""
    prepare_streams()
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except CrushpyError as error:
        from crushpy.security.sanitize import clean

        print(f"crushpy: {clean(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"  {clean(error.hint)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        forget_output()
        if not isinstance(error, BrokenPipeError):  # whoever read it has gone, and knows
            print(f"crushpy: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
