"""What importing the transcript loads."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_transcript_loads_markdown_and_pygments_lazily() -> None:
    code = (
        "import sys, crushpy.tui.transcript.widget;"
        "print([name for name in ('markdown_it', 'pygments.lexers') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
