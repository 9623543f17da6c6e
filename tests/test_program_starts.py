"""Every place of the package that starts a program or a process, with the reason why it may."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "crushpy"
STARTERS = {
    *("Popen", "create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell"),
    *("getoutput", "getstatusoutput", "forkpty", "posix_spawn", "posix_spawnp"),
    *("execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp", "execvpe", "startfile"),
}
MODULES = {
    "subprocess": {"run", "call", "check_call", "check_output"},
    "os": {"system", "popen", "fork", "spawnl", "spawnv", "spawnve", "spawnvp"},
    "webbrowser": {"open", "open_new", "open_new_tab"},
    "pty": {"spawn", "fork"},
}
"""Functions that count only as an attribute of their module, since their names are common."""

LAUNCHER = {
    "sandbox/supervisor_handle.py": "starts supervisors for commands, hooks, language servers, set-ups and"
    " status lines, and says how our process for MCP has to start a server",
    "extensions/mcp/mcp_helper.py": "MCP servers, only as `prepare_start` of the launcher says",
    "sandbox/supervisor/main.py": "runs them, inside the sandbox",
    "sandbox/supervisor/landlock.py": "a process of the supervisor",
}
"""Where commands of others are run, with one policy for environment, folder, descriptors and limits."""
OTHERS = {
    "sandbox/finding.py": "tries whether a sandbox works, with fixed words",
    "security/safe_git.py": "git with settings that run nothing of a repository",
    "engine/agents/task_workspaces.py": "git for worktrees, with the environment of `security/safe_git.py`",
    "tools/search/ripgrep.py": "ripgrep, found outside the project, without its settings",
    "tools/web/page_visit.py": "our own converter of pages, which can be killed",
    "util/helper_process.py": "our own code in a process that imports slow libraries",
    "fleet/task_process.py": "forks itself for each task of a fleet",
    "tui/terminal/clipboard.py": "the system's clipboard program, with fixed words",
    "tui/widgets/file_finder.py": "git or ripgrep for completion, found outside the project",
    "tui/widgets/external_editor.py": "the user's editor",
    "cli/template.py": "the user's editor",
    "cli/mcp.py": "the user's browser, for a login",
}


def starts_in(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        owner = node.value.id if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""
        if isinstance(node.ctx, ast.Load) and (name in STARTERS or name in MODULES.get(owner, ())):
            yield node.lineno


def test_programs_are_started_only_where_listed() -> None:
    found: dict[str, list[int]] = {}
    for file in PACKAGE.rglob("*.py"):
        if lines := list(starts_in(ast.parse(file.read_text(encoding="utf-8")))):
            found[str(file.relative_to(PACKAGE))] = lines
    unlisted = {name: lines for name, lines in found.items() if name not in LAUNCHER | OTHERS}
    assert not unlisted, "start it by tools/shell/jobs.py, or add it with the reason"
    assert set(LAUNCHER | OTHERS) == set(found), "a listed file starts nothing any more"


def test_names_of_modules_that_start_programs_are_not_hidden_by_other_imports() -> None:
    hidden: list[str] = []
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            aliases = node.names if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = node.module if isinstance(node, ast.ImportFrom) else ""
            for alias in aliases:
                renamed = alias.name in MODULES and alias.asname not in (None, alias.name)
                taken = module in MODULES and alias.name in MODULES[str(module)]
                if renamed or taken or (alias.name in STARTERS and alias.asname):
                    hidden.append(f"{file.relative_to(PACKAGE)}:{node.lineno}")
    assert hidden == []
