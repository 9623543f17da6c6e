"""`crushpy doctor`: checks the installation and suggests fixes."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from crushpy.cli.checkup import Report


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(
    online: Annotated[bool, typer.Option("--online", help="Also send the model one short request.")] = False,
    sandbox: Annotated[
        bool, typer.Option("--sandbox", help="Instead, test escapes from the sandbox.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check the installation and report problems.

    Without --online only model servers on this machine are contacted. Exit codes: 0 no failure, 1 a check
    failed.
    """
    import asyncio

    from crushpy.cli.checkup import examine, try_sandbox

    report = asyncio.run(try_sandbox() if sandbox else examine(online=online))
    broken = any(finding.mark == "fail" for found in report.values() for finding in found)
    print(_as_json(report) if as_json else _as_text(report))
    sys.stdout.flush()
    if broken:
        raise typer.Exit(1)


def _as_json(report: "Report") -> str:
    import json

    import msgspec

    from crushpy.security.redact import redact_data

    rows = [
        {"area": area, **msgspec.to_builtins(finding)} for area, found in report.items() for finding in found
    ]
    return json.dumps(redact_data(rows), indent=2)


def _as_text(report: "Report") -> str:
    from crushpy.security.redact import redact
    from crushpy.security.sanitize import clean

    lines: list[str] = []
    for area, found in report.items():
        lines.append(area)
        for finding in found:
            lines.append(f"  {finding.mark:<4}  {clean(redact(finding.text))}")
            lines += [f"        {clean(redact(line))}" for line in finding.hint.splitlines()]
    marks = [finding.mark for found in report.values() for finding in found]
    wrong, doubtful = marks.count("fail"), marks.count("warn")
    lines += ["", f"{wrong or 'nothing'} broken, {doubtful} to look at"]
    return "\n".join(lines)
