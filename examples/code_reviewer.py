"""Reviews the changes of a branch and prints findings as JSON: `python examples/code_reviewer.py main`.

Exit code 1 if there is a serious finding, for use in a pipeline.
"""

import subprocess
import sys
from typing import Literal

import msgspec

import crushpy


class Finding(msgspec.Struct):
    file: str
    line: int
    severity: Literal["minor", "serious"]
    problem: str


class Review(msgspec.Struct):
    summary: str
    findings: list[Finding]


def main() -> int:
    base = sys.argv[1] if len(sys.argv) > 1 else "main"
    diff = subprocess.run(["git", "diff", base], capture_output=True, text=True, check=True).stdout
    if not diff:
        print("There are no changes.")
        return 0
    prompt = f"Review this change. Read the code around it before you judge.\n\n{diff}"
    with crushpy.Agent(permissions="read", limits=crushpy.Limits(cost=0.50)) as agent:
        review = agent.ask(prompt, schema=Review).value
    print(msgspec.json.format(msgspec.json.encode(review)).decode())
    return any(finding.severity == "serious" for finding in review.findings)


if __name__ == "__main__":
    sys.exit(main())
