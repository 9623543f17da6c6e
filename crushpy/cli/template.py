"""`crushpy template`: shows, edits and checks the texts sent to the model."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crushpy.cli.command_helpers import (
    add_group,
    argument,
    option,
    print_note,
    suggest_name,
)
from crushpy.cli.workspace import environment_here
from crushpy.core import templates as prompts
from crushpy.core.errors import UsageError
from crushpy.core.templates import Template, Templates

if TYPE_CHECKING:
    from crushpy.engine.template_editor import OwnTemplate

TemplateName = Annotated[
    str,
    argument(
        "The template: summary, system, new_session, tools/bash, ...",
        show_default=True,
        autocompletion=prompts.shipped_names,
    ),
]


def register(app: typer.Typer) -> None:
    commands = {"show": show_template, "path": template_path, "edit": edit_template}
    add_group(app, "template", commands | {"check": check_templates, "reset": reset_template})


def show_template(name: TemplateName = "summary") -> None:
    """Print the effective template."""
    sys.stdout.write(_effective_template(name).text)


def template_path(name: TemplateName = "summary") -> None:
    """Print the path of the effective template, and where your own would be."""
    found = _effective_template(name)
    print(f"{found.path}  ({found.layer})")
    if found.layer == "shipped":
        print(f"yours would be {_own_template(name).file}  (crushpy template edit {name})")


def edit_template(name: TemplateName = "summary") -> None:
    """Open your own copy in $EDITOR, created from the shipped text."""
    import os
    import shlex
    import subprocess

    own = _own_template(name).edited()
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise UsageError(
            f"Neither VISUAL nor EDITOR is set. The file is {own}", "Set EDITOR, or edit it yourself."
        )
    code = subprocess.run([*shlex.split(editor), str(own)], check=False).returncode
    if code != 0:
        raise UsageError(f"{editor} ended with {code}. The file is {own}")
    _check_file(name, own)


def check_templates(
    name: Annotated[str, argument("The template; all of yours if omitted.")] = "",
    file: Annotated[Path | None, option("--file", "Check this file instead, as NAME.")] = None,
) -> None:
    """Report line, name and reason of every invalid template."""
    if file is not None:
        _check_file(name or "summary", file)
        return
    failed = False
    for template_name in [name] if name else prompts.shipped_names():
        layer, found = next(_templates(template_name).candidates(template_name))
        try:
            prompts.template_from_file(template_name, found)
            if name or layer != "shipped":
                print(f"{template_name}: fine  ({found})")
        except prompts.TemplateProblem as problem:
            failed = True
            print_note(
                f"{template_name}: {problem.message}\n  {problem.hint} Until then the shipped one is used."
            )
    if failed:
        raise typer.Exit(2)
    if not name:
        print("All templates are fine.")


def reset_template(name: TemplateName = "summary") -> None:
    """Return to the shipped template; yours is kept as a .bak file."""
    own = _own_template(name)
    backup = own.reset()
    if backup is None:
        print(f"There is no template of yours at {own.file}; the shipped one is used.")
        return
    print(f"The shipped {name} is used again. Yours is kept as {backup}.")


def _templates(name: str) -> Templates:
    known = prompts.shipped_names()
    if name not in known:
        hint = f"{suggest_name(name, known)}Known templates: {', '.join(known)}."
        raise UsageError(f"There is no template named {name!r}.", hint)
    return environment_here().templates


def _own_template(name: str) -> "OwnTemplate":
    from crushpy.engine.template_editor import OwnTemplate

    return OwnTemplate(_templates(name), name)


def _effective_template(name: str) -> Template:
    """The effective template; problems of templates with precedence go to stderr."""
    templates = _templates(name)
    found = templates.find(name)
    for problem in templates.problems.values():
        print_note(f"crushpy: {problem.message}\n  {problem.hint} The next one is used until then.")
    return found


def _check_file(name: str, file: Path) -> None:
    prompts.template_from_file(name, file)
    print(f"{name}: fine  ({file}). It is used from now on.")
