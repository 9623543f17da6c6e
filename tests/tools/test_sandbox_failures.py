"""A command that the sandbox stopped is told so, and how to ask; any other failure stays its own."""

import pytest

from crushpy.core.access import Privileges
from crushpy.tools.bash import explain_sandbox_failure

NOTHING = Privileges()


@pytest.mark.parametrize(
    ("output", "word"),
    [
        ("touch: cannot touch '/etc/x': Read-only file system", "needs.write"),
        ("curl: (6) Could not resolve host: pypi.org", "needs.network"),
        ("OSError: [Errno 101] Network is unreachable", "needs.network"),
        ("npm ERR! code EAI_AGAIN", "needs.network"),
        ("fatal: Unable to create '/w/.git/index.lock': Read-only file system", ".git"),
        ("mv: cannot move '.git' to 'y': Device or resource busy", ".git"),
    ],
)
def test_sandbox_failure_names_what_was_refused(output: str, word: str) -> None:
    assert word in explain_sandbox_failure(output, NOTHING)


@pytest.mark.parametrize("output", ["AssertionError: 1 != 2", "make: *** No rule to make target", ""])
def test_ordinary_failure_is_not_explained_by_the_sandbox(output: str) -> None:
    assert explain_sandbox_failure(output, NOTHING) == ""


def test_granted_command_is_not_explained() -> None:
    assert explain_sandbox_failure("Could not resolve host: x", Privileges(network=True)) == ""


@pytest.mark.parametrize(
    "output",
    [
        "curl: (7) Failed to connect to localhost port 8000 after 0 ms: Connection refused",
        "curl: (7) Failed to connect to localhost port 8000 after 0 ms: Couldn't connect to server",
        "requests: HTTPConnectionPool(host='127.0.0.1', port=8000): [Errno 111] Connection refused",
    ],
)
def test_command_with_the_whole_network_is_told_about_sandbox_servers(output: str) -> None:
    assert "without needs.network" in explain_sandbox_failure(output, Privileges(network=True))
    elsewhere = output.replace("localhost", "a.example").replace("127.0.0.1", "a.example")
    assert explain_sandbox_failure(elsewhere, Privileges(network=True)) == ""
