"""`crushpy doctor`: checks the installation and suggests fixes."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crushpy.cli.command_helpers import AsJson, add_command, print_json, print_text
from crushpy.security.redact import redact, redact_data
from crushpy.security.sanitize import clean

if TYPE_CHECKING:
    from crushpy.cli.checkup import Report


def register(app: typer.Typer) -> None:
    add_command(app, "doctor", doctor)


async def doctor(
    online: Annotated[bool, typer.Option("--online", help="Also send the model one short request.")] = False,
    sandbox: Annotated[
        bool, typer.Option("--sandbox", help="Instead, test escapes from the sandbox.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the installation and report problems.

    Without --online only model servers on this machine are contacted. Exit codes: 0 no failure, 1 a check
    failed.
    """
    from crushpy.cli.checkup import run_checks

    report = await run_checks(online=online, escapes=sandbox)
    failed = any(finding.mark == "fail" for found in report.values() for finding in found)
    if as_json:
        rows = [
            {"area": area, **msgspec.to_builtins(finding)}
            for area, found in report.items()
            for finding in found
        ]
        print_json(redact_data(rows))
    else:
        print_text(_as_text(report))
    if failed:
        raise typer.Exit(1)


def _as_text(report: "Report") -> str:
    lines: list[str] = []
    for area, found in report.items():
        lines.append(area)
        for finding in found:
            lines.append(f"  {finding.mark:<4}  {clean(redact(finding.text))}")
            lines += [f"        {clean(redact(line))}" for line in finding.hint.splitlines()]
    marks = [finding.mark for found in report.values() for finding in found]
    failures, warnings = marks.count("fail"), marks.count("warn")
    lines += ["", f"{failures or 'nothing'} broken, {warnings} to look at"]
    return "\n".join(lines) + "\n"
