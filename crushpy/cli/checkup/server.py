"""Checks of a server that keeps conversations: there, new enough, ours to use, quick."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from crushpy.cli.checkup.finding import Finding, fail, ok, warn
from crushpy.core.messages import counted

if TYPE_CHECKING:
    from crushpy.storage.server_report import ServerReport

SLOW_SECONDS = 0.05


async def server(place: str, url: str) -> AsyncIterator[Finding]:
    from crushpy.core.errors import CrushpyError
    from crushpy.storage.location import examine_server

    try:
        found = await asyncio.to_thread(examine_server, url)
    except CrushpyError as error:
        yield fail(error.message, error.hint)
        return
    yield ok(f"reachable: {place} as {found.role}")
    for finding in (*_suited(found), *_tables(found)):
        yield finding
    answered = f"{found.latency * 1000:.1f} ms for a question"
    near = "Every write asks about ten times: a server nearer by makes turns quicker."
    yield ok(answered) if found.latency < SLOW_SECONDS else warn(answered, near)


def _suited(found: "ServerReport") -> Iterator[Finding]:
    if found.number < found.oldest * 10_000:
        yield fail(f"PostgreSQL {found.version}: {found.oldest} or newer is needed", "Update the server.")
    else:
        yield ok(f"PostgreSQL {found.version}, psycopg {found.library}")
    if found.encoding == "UTF8":
        yield ok("encoding UTF8")
    else:
        make = "createdb --encoding=UTF8 --template=template0 NAME"
        yield fail(f"encoding {found.encoding}: only UTF8 holds every character", make)
    if found.read_only:
        yield fail("it only reads", "Name the primary server in database_url.")


def _tables(found: "ServerReport") -> Iterator[Finding]:
    if not found.schema_version:
        if found.may_create:
            yield ok("nothing is stored yet: the first conversation makes the tables")
        else:
            hint = f"As the owner of the database: CREATE SCHEMA crushpy AUTHORIZATION {found.role}"
            yield fail("the role may not make the schema crushpy", hint)
        return
    if found.schema_version > found.newest:
        newer = f"tables of version {found.schema_version}; this crushpy knows {found.newest}"
        yield fail(newer, "Update crushpy.")
    elif found.schema_version < found.newest:
        yield warn(f"tables of version {found.schema_version}; the next start makes them {found.newest}")
    else:
        yield ok(f"tables of version {found.schema_version}, {counted(found.conversations, 'conversation')}")
    if not found.may_write:
        yield fail("the role may not write to all tables", "docs/storage.md lists the rights.")
    if found.unfinished:
        hint = "Run the same `crushpy storage copy` again: it goes on."
        yield fail(f"a copy of {found.unfinished} into it was interrupted", hint)
    if found.trigrams:
        yield ok("pg_trgm: parts of words are found by an index")
    else:
        hint = "As a superuser or the owner of the database: CREATE EXTENSION pg_trgm"
        yield warn("pg_trgm is missing: searches for parts of words read the list of all words", hint)
