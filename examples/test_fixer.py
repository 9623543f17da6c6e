"""Lets the agent work until the tests pass: `python examples/test_fixer.py pytest -x`.

It may edit files of this folder and run exactly this command.
"""

import subprocess
import sys

import crushpy

MAX_ROUNDS = 3


def run(command: list[str]) -> tuple[bool, str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0, (done.stdout + done.stderr)[-8_000:]


def main() -> int:
    command = sys.argv[1:] or ["pytest", "-x"]
    passed, output = run(command)
    if passed:
        print("The tests pass already.")
        return 0
    rule = f"bash({' '.join(command)})"
    limits = crushpy.Limits(steps=40)
    with crushpy.Agent(permissions=["edit", "multiedit", "write", rule], limits=limits) as agent:
        for number in range(1, MAX_ROUNDS + 1):
            reply = agent.ask(f"`{' '.join(command)}` fails. Fix the code, not the test.\n\n{output}")
            passed, output = run(command)
            print(f"Round {number}: {'passed' if passed else 'still failing'}. {reply.text[:200]}")
            if passed:
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
