"""`crushpy doctor` with a server: what is wrong with it, in words that name the way out."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import Cli
from support.postgres_server import Server
from support.tcp_proxy import Proxy

from crushpy.storage.location import ServerAddress
from crushpy.storage.storage_thread import examine_server

pytestmark = pytest.mark.xdist_group("postgres")


@pytest.fixture
def guarded(postgres: Server) -> Iterator[str]:
    """A role that needs its password."""
    hba = postgres.folder / "data" / "pg_hba.conf"
    before = hba.read_text()
    postgres.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    hba.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{before}")
    postgres.execute("SELECT pg_reload_conf()")
    yield "guarded"
    hba.write_text(before)
    postgres.execute("SELECT pg_reload_conf()")
    postgres.execute("DROP ROLE guarded")


def doctor(cli: Cli, url: str, **env: str) -> str:
    told = cli("doctor", env={"CRUSHPY_DATABASE_URL": url, **env})
    assert "Traceback" not in told.stderr
    return told.stdout + told.stderr


def test_a_wrong_password_and_none_are_told_with_where_one_belongs(
    cli: Cli, postgres: Server, guarded: str
) -> None:
    url = postgres.url("postgres", user=guarded)
    wrong = doctor(cli, url, PGPASSWORD="hunter2")
    assert "password authentication failed" in wrong and ".pgpass" in wrong and "hunter2" not in wrong
    none = doctor(cli, url)
    assert "no password supplied" in none and ".pgpass" in none
    assert "reachable" in doctor(cli, url, PGPASSWORD="right")


def test_a_server_that_is_down_and_a_database_that_is_not_there_are_told(cli: Cli, postgres: Server) -> None:
    proxy = Proxy(postgres.port)
    proxy.close()
    down = doctor(cli, postgres.url("x", port=proxy.port))
    assert f"cannot use the database postgresql://owner@127.0.0.1:{proxy.port}/x" in down
    assert "Check that the server runs" in down
    missing = doctor(cli, postgres.url("nowhere"))
    assert 'database "nowhere" does not exist' in missing and "createdb" in missing


def test_a_missing_extension_and_an_interrupted_copy_are_told(cli: Cli, postgres: Server) -> None:
    name = postgres.fresh()
    postgres.execute("DROP EXTENSION pg_trgm CASCADE", name)
    postgres.execute("INSERT INTO crushpy.maintenance VALUES ('copy', '/old.db')", name)
    told = doctor(cli, postgres.url(name))
    assert "pg_trgm is missing" in told and "CREATE EXTENSION pg_trgm" in told
    assert "a copy of /old.db to it was interrupted" in told and "crushpy storage copy" in told
    postgres.drop(name)


def test_a_server_that_is_too_old_is_told(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crushpy.storage.postgres_database.OLDEST_SERVER", 99)
    found = examine_server(ServerAddress(postgres.url("postgres")))
    (old,) = [finding for finding in found if "99 or newer is needed" in finding[1]]
    assert old[0] == "fail" and old[2] == "Update the server."


def test_a_project_may_name_no_database_and_no_settings_file_a_password(
    cli: Cli, workspace: Path, home: Path
) -> None:
    (workspace / ".crushpy").mkdir()
    (workspace / ".crushpy" / "config.toml").write_text('database_url = "postgresql://me:hunter2@db/x"\n')
    assert cli("trust").returncode == 0
    told = cli("doctor")
    assert "database_url" in told.stdout and "hunter2" not in told.stdout + told.stderr
    assert f"database   {home}" in told.stdout, "what the project names is not used"
