"""Gives a process of a test a keyring of its own, and shows what is in it."""

import json
import os
from pathlib import Path

import pytest


@pytest.fixture
def keyring_env(tmp_path: Path) -> dict[str, str]:
    """Environment of a process that has a keyring of its own."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        "PYTHONPATH": path,
        "PYTHON_KEYRING_BACKEND": "file_keyring.FileKeyring",
        "TEST_KEYRING": str(tmp_path / "keyring.json"),
        "KEYRING_PROPERTY_FILE": str(tmp_path / "keyring.json"),
    }


def kept(env: dict[str, str]) -> dict[str, str]:
    """What the keyring of that process holds."""
    file = Path(env["TEST_KEYRING"])
    return json.loads(file.read_text()) if file.exists() else {}
