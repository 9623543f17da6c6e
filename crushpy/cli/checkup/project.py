"""Checks of what a folder brings along: trust, rules, templates, and instructions for the model."""

from collections.abc import Iterator

from crushpy.cli.checkup.finding import Finding, Scene, fail, ok, warn
from crushpy.core.paths import PROJECT_FOLDER, project_root


def check_trust(scene: Scene) -> Iterator[Finding]:
    from crushpy.permissions.trust import trusted

    root = project_root(scene.cwd)
    brings = [name for name in ("config.toml", "templates") if (root / PROJECT_FOLDER / name).exists()]
    what = " and ".join(f"{PROJECT_FOLDER}/{name}" for name in brings)
    if scene.trusted:
        yield ok(f"{root} is trusted: {what or 'it brings no settings or templates'}")
    elif brings:
        yield warn(f"{root} is not trusted: its {what} is ignored", "Look at it, then run `crushpy trust`.")
    else:
        yield ok(f"{root} is not trusted, and brings no settings or templates")
    for folder in trusted(scene.paths):
        if not folder.is_dir():
            yield warn(f"{folder} is trusted and not there any more", f"crushpy untrust {folder}")
        elif folder != root.resolve():
            yield ok(f"{folder} is trusted too")


def permissions(scene: Scene) -> Iterator[Finding]:
    from crushpy.permissions.rules import RuleSet
    from crushpy.tools.registry import tool_table

    chosen = scene.settings.permissions
    RuleSet.from_strings(allow=chosen.allow, ask=chosen.ask, deny=chosen.deny, tools=tool_table())
    counts = {"allow": len(chosen.allow), "ask": len(chosen.ask), "deny": len(chosen.deny)}
    yield ok(", ".join(f"{count} {kind}" for kind, count in counts.items()) + " rules")


def templates(scene: Scene) -> Iterator[Finding]:
    from crushpy.core import templates as prompts

    shipped = prompts.shipped_dir()
    names = prompts.shipped_names()
    if "system" not in names:
        yield fail(f"the templates that come with crushpy are not in {shipped}", "Install crushpy again.")
        return
    yield ok(f"{len(names)} come with crushpy ({shipped})")
    folders = [("yours", scene.paths.templates)]
    if scene.trusted:
        folders.append(("the project's", project_root(scene.cwd) / PROJECT_FOLDER / "templates"))
    for whose, folder in folders:
        for path in sorted(folder.rglob("*.md")):
            name = path.relative_to(folder).with_suffix("").as_posix()
            if name not in names:
                yield warn(f"{path} is never used", f"There are: {', '.join(names)}.")
                continue
            try:
                prompts.check_template_file(name, path)
                yield ok(f"{name} is {whose} ({path})")
            except prompts.TemplateProblem as problem:
                yield fail(problem.message, f"{problem.hint} Meanwhile another one is used.")


def check_context_files(scene: Scene) -> Iterator[Finding]:
    from crushpy.engine import environment

    found = environment.context_files(scene.cwd, scene.paths.config_dir)
    for file in found:
        length = f"{len(file.text):,} characters"
        if file.cut:
            yield warn(
                f"{file.path}  ({length}; {file.cut:,} more are cut off)",
                f"Shorten it: at most {environment.MAX_FILE:,} of a file and {environment.MAX_ALL:,} of all "
                "go to the model.",
            )
        else:
            yield ok(f"{file.path}  ({length})")
    if not found:
        yield ok(f"none ({', '.join(environment.NAMES)} from the project's root down to here)")
