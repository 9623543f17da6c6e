"""The plans of the demo, one for each thing it can be asked to do with a tool or two."""

import re
from pathlib import PurePath

from crushpy.llm.demo.steps import Ask, Ending, Plan, Step, ask
from crushpy.llm.demo.words import excerpt, failed, told

TOUR_FILE = "crushpy-tour.md"
TEXT_FILES = "**/*.{md,txt,toml,py,js,ts,go,rs,c,java}"
_BEFORE = "The tour wrote this line."
_AFTER = "The tour wrote this line, read it, and changed it."


def look_around(path: str = "") -> Plan:
    where = {"path": path} if path else {}
    listing, notes = yield Step(
        "I will look around.",
        (Ask("ls", where), Ask("glob", {"pattern": "./README*", **where})),
    )
    if listing.is_error:
        return failed(listing)
    seen = f"This is what is here:\n{excerpt(listing.text)}"
    readme = _first_path(notes.text, "README")
    if notes.is_error or not readme:
        return Ending(seen)
    (text,) = yield ask("There is a README; I will read how it begins.", "view", file_path=readme, limit=30)
    return Ending(seen if text.is_error else f"{seen}\n{readme} begins:\n{excerpt(text.text, 8)}")


def read_file(file: str, first: int | None = None, last: int | None = None) -> Plan:
    part: dict[str, int] = {}
    if first is not None:
        part["offset"] = first
    if first is not None and last is not None:
        part["limit"] = last - first + 1
    (seen,) = yield ask(f"I will read {file}.", "view", file_path=file, **part)
    if not seen.is_error:
        return told(seen, f"I read {file}:")
    name = PurePath(file).name
    (found,) = yield ask("That did not work; I will look for the name.", "glob", pattern=f"**/{name}")
    elsewhere = "" if found.is_error else _first_path(found.text, name)
    if not elsewhere or elsewhere == file:
        return failed(seen)
    (seen,) = yield ask(f"There is {elsewhere}; I will read that.", "view", file_path=elsewhere, **part)
    return told(seen, f"There is no {file}, but I read {elsewhere}:")


def read_something() -> Plan:
    (found,) = yield ask("I will find a file to read.", "glob", pattern=TEXT_FILES)
    file = "" if found.is_error else _first_path(found.text)
    if not file:
        return Ending(f"I found no text file here. Try: create {TOUR_FILE} with some words", done=False)
    (seen,) = yield ask(f"I will read {file}.", "view", file_path=file)
    return told(seen, f"I read {file}:")


def search(words: str, path: str = "") -> Plan:
    where = {"path": path} if path else {}
    (found,) = yield ask(f"I will search for {words!r}.", "grep", pattern=_literal(words), **where)
    return told(found, f"I searched for {words!r}:")


def find_files(pattern: str) -> Plan:
    full = pattern if "/" in pattern else f"**/{pattern}"
    (found,) = yield ask(f"I will look for files named {pattern}.", "glob", pattern=full)
    return told(found, f"Files named {pattern}:")


def run_in_shell(command: str, background: bool = False) -> Plan:
    if not background:
        (output,) = yield ask(f"I will run `{command}`.", "bash", command=command)
        return told(output, f"`{command}` printed:")
    (started,) = yield ask(f"I will start `{command}`.", "bash", command=command, background=True)
    job = re.search(r"Started (\S+?)\.", started.text)
    if started.is_error or job is None:
        return told(started, f"`{command}` was started:")
    (output,) = yield ask("I will see what it has printed.", "job_output", job_id=job[1])
    return told(output, f"`{command}` runs as {job[1]}; so far:")


def fetch(url: str) -> Plan:
    (page,) = yield ask(f"I will fetch {url}.", "fetch", url=url)
    return told(page, f"{url} says:")


def recall_words(words: str) -> Plan:
    (found,) = yield ask(f"I will look for {words!r} in what was said before.", "recall", query=words)
    return told(found, f"I recall of {words!r}:")


def replace(file: str, old: str, new: str, everywhere: bool = False) -> Plan:
    (seen,) = yield ask(f"I will read {file} before I change it.", "view", file_path=file)
    if seen.is_error:
        return failed(seen)
    every = {"replace_all": True} if everywhere else {}
    (changed,) = yield ask(
        f"I will replace {old!r} with {new!r}.",
        "edit",
        file_path=file,
        old_string=old,
        new_string=new,
        **every,
    )
    return told(changed, f"I changed {file}:")


def create(file: str, content: str) -> Plan:
    content = content if content.endswith("\n") else content + "\n"
    (written,) = yield ask(f"I will write {file}.", "write", file_path=file, content=content)
    if not written.is_error or "view it" not in written.text:
        return told(written, f"I wrote {file}:")
    (seen,) = yield ask(f"{file} is there already; I must read it first.", "view", file_path=file)
    if seen.is_error:
        return failed(seen)
    (written,) = yield ask(f"Now I will write {file} anew.", "write", file_path=file, content=content)
    return told(written, f"I replaced what was in {file}:")


def show_an_edit() -> Plan:
    """An edit for those who did not say which: on a file of our own."""
    made = yield from create(TOUR_FILE, f"# A tour of crushpy\n\n{_BEFORE}\n")
    if not made.done:
        return made
    changed = yield from replace(TOUR_FILE, _BEFORE, _AFTER)
    if not changed.done:
        return changed
    return Ending(f"{changed.text}\n{TOUR_FILE} is mine; delete it when you have seen enough.")


def _literal(words: str) -> str:
    """A pattern that finds just these words. (re.escape writes escapes that ripgrep does not know.)"""
    return re.sub(r"([\\^$.|?*+(){}\[\]])", r"\\\1", words)


def paths_in(listing: str) -> list[str]:
    """The paths in what `glob` gave; its remarks have blanks in them, and so, alas, have some paths."""
    rows = (row.strip() for row in listing.splitlines())
    return [row for row in rows if row and " " not in row and not row.endswith("/")]


def _first_path(listing: str, containing: str = "") -> str:
    return next((path for path in paths_in(listing) if containing in path), "")
