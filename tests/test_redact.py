"""Secrets go, everything else stays, and no text makes it slow."""

import json
import string
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crushpy.security.redact import MARK, redact, redact_data

WORD = string.ascii_letters + string.digits


def made_of(alphabet: str, length: int) -> st.SearchStrategy[str]:
    return st.text(alphabet=alphabet, min_size=length, max_size=length)


def with_digit(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return strategy.filter(lambda text: any(char.isdigit() for char in text))


KEYS = st.one_of(
    with_digit(made_of(WORD, 48)).map(lambda body: f"sk-{body}"),
    with_digit(made_of(WORD + "_-", 60)).map(lambda body: f"sk-proj-{body}"),
    with_digit(made_of(WORD + "_-", 90)).map(lambda body: f"sk-ant-api03-{body}"),
    made_of(WORD, 36).map(lambda body: f"ghp_{body}"),
    made_of(WORD + "_", 70).map(lambda body: f"github_pat_{body}"),
    made_of(WORD + "_-", 20).map(lambda body: f"glpat-{body}"),
    made_of(string.ascii_uppercase + string.digits, 16).map(lambda body: f"AKIA{body}"),
    made_of(string.digits, 12).map(lambda body: f"xoxb-{body}-{body}-abc"),
    made_of(WORD + "_-", 35).map(lambda body: f"AIza{body}"),
    made_of(WORD, 34).map(lambda body: f"hf_{body}"),
    made_of(WORD, 24).map(lambda body: f"sk_live_{body}"),
    made_of(WORD + "_-", 30).map(lambda body: f"eyJ{body}.eyJ{body}.{body}"),
)
AROUND = st.sampled_from(["", " ", "\n", '"', "'", "`", "(", "=", ": ", ",", "<", "é", "key is "])


@given(KEYS, AROUND, AROUND)
@settings(max_examples=300)
def test_a_key_of_a_known_look_goes_wherever_it_stands(key: str, before: str, after: str) -> None:
    after = "" if after[:1].isalnum() else after
    assert redact(f"{before}{key}{after}") == f"{before}{MARK}{after}"


@given(
    with_digit(made_of(WORD, 12)),
    st.sampled_from(["password", "DB_PASSWORD", "apiKey", "auth-token", "SECRET"]),
)
def test_secret_assignments_are_redacted_in_every_notation(value: str, name: str) -> None:
    if value.isdigit():
        value = f"a{value}"
    if len(set(value)) == 1:
        return
    for text in (
        f"{name}={value}",
        f"export {name}={value} # note",
        f"{name}: {value}",
        f'{name} = "{value}"',
        f"{name}='{value}',",
        json.dumps({name: value}),
        json.dumps(json.dumps({name: value})),
        f"https://host/path?x=1&{name}={value}&y=2",
        f"tool --{name} {value} run",
        f"{name} => {value};",
    ):
        assert value not in redact(text), text
        assert redact(text).replace(MARK, value) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abcdefgh", "Authorization: Bearer [redacted]"),
        ("curl -H 'authorization: basic dXNlcjpwYXNz'", "curl -H 'authorization: basic [redacted]'"),
        ('{"Authorization": "token 0123456789abcdef"}', '{"Authorization": "token [redacted]"}'),
        ("sent Bearer 8f14e45fceea167a5a36", "sent Bearer [redacted]"),
        ("postgres://me:hunter2@db:5432/x", "postgres://me:[redacted]@db:5432/x"),
        ("redis://:p@ss@host/0", "redis://:[redacted]@host/0"),
        ("password=letmein", "password=[redacted]"),
        ('password = "correct horse battery staple"', 'password = "[redacted]"'),
        ("mysql --password letmein -e x", "mysql --password [redacted] -e x"),
        ("PGPASSWORD=abcd psql", "PGPASSWORD=[redacted] psql"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPx", "aws_secret_access_key = [redacted]"),
        ("token=token1234", "token=[redacted]"),
        ("password=password1", "password=[redacted]"),
    ],
)
def test_headers_addresses_and_assignments(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
def test_a_private_key_goes_whole_also_where_its_end_was_cut_off(kind: str) -> None:
    body = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"] * 5)
    key = f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\nabc=\n-----END {kind}PRIVATE KEY-----"
    assert redact(f"before\n{key}\nafter") == f"before\n{MARK}\nafter"
    assert redact(f"{key} and {key}") == f"{MARK} and {MARK}"
    in_json = json.dumps({"key": key, "next": "stays"})
    assert json.loads(redact(in_json)) == {"key": MARK, "next": "stays"}
    cut = key[: len(key) // 2]
    assert redact(f"before\n{cut}\n[... 500 chars truncated ...]\nafter, too") == (
        f"before\n{MARK}\n[... 500 chars truncated ...]\nafter, too"
    )


def test_a_public_key_stays() -> None:
    text = "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A\n-----END PUBLIC KEY-----"
    assert redact(text) == text


def test_values_of_our_own_secret_variables_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXAMPLE_API_KEY", "orange-elephant")
    monkeypatch.setenv("LONGER_API_KEY", "orange-elephant-two")
    monkeypatch.setenv("EXAMPLE_TOKEN", "short")
    monkeypatch.setenv("EXAMPLE_NAME", "green-giraffe")
    text = "an orange-elephant, an orange-elephant-two, a short green-giraffe"
    assert redact(text) == f"an {MARK}, an {MARK}, a short green-giraffe"


@pytest.mark.parametrize(
    "text",
    [
        "commit 3c5d1c0e9f6b4a7d8e2f1a0b9c8d7e6f5a4b3c2d",
        "Merge 3c5d1c0..9f6b4a7 into main",
        "550e8400-e29b-41d4-a716-446655440000",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "session 01hzx3k9q2vw, message 7gq2vw01hzx3",
        "the password: required, at least eight letters",
        "token: the smallest piece of text",
        "max_tokens=4096, tokens: 123456789, token_count=99999999",
        "token: str | None = None",
        "def login(password: str, token: Token) -> None:",
        "connect(password=password, token=self.token, secret=get_secret())",
        "api_key=os.environ['OPENAI_API_KEY']",
        "export TOKEN=$GITHUB_TOKEN PASSWORD=${DB_PASSWORD}",
        "password=<your password>",
        "password=********",
        "PWD=/home/me/project OLDPWD=/tmp",
        "https://example.com:8080/path?x=1 and http://[::1]:80/",
        "git@github.com:me/repo.git",
        "postgres://me:$PASSWORD@host/db",
        "the bearer of this letter, a basic understanding",
        "task-management sk-estimator-doc-link-fitted risk-assessment-2024",
        "tokenizer: o200k_base",
        "secrets: a list of names",
        "secret_santa = 'Bob and Alice'",
    ],
)
def test_hashes_ids_code_and_prose_stay(text: str) -> None:
    assert redact(text) == text


@given(
    st.lists(st.sampled_from(["alpha", "beta", "The", "end.", "of", "a", "line\n", "12", "x = y", "(ok)"]))
)
def test_plain_words_stay(words: list[str]) -> None:
    text = " ".join(words)
    assert redact(text) == text


@given(
    st.lists(
        st.sampled_from([*"ab1 =:'\"\\/@-\n.[]", "password", "token", "Bearer ", "authorization", "://"])
    )
)
@settings(max_examples=300)
def test_redacting_again_changes_nothing(pieces: list[str]) -> None:
    once = redact("".join(pieces))
    assert redact(once) == once


def test_our_own_source_stays_readable() -> None:
    sources = list((Path(__file__).parents[1] / "crushpy" / "storage").glob("*.py"))
    assert sources
    for source in sources:
        assert MARK not in redact(source.read_text())


def test_inside_data_a_secrets_name_hides_its_text_whole() -> None:
    data = {
        "password": "plain",
        "api_key": "",
        "headers": {"Authorization": "anything", "Accept": "text/html"},
        "command": ["curl", "password=letmein"],
        "max_tokens": 5,
        "token": 12,
        "credentials": {"names": ["bob", "eve"]},
    }
    assert redact_data(data) == {
        "password": MARK,
        "api_key": "",
        "headers": {"Authorization": MARK, "Accept": "text/html"},
        "command": ["curl", f"password={MARK}"],
        "max_tokens": 5,
        "token": 12,
        "credentials": {"names": [MARK, MARK]},
    }


SIZE = 1_000_000
HOSTILE: dict[str, Callable[[], str]] = {
    "prose": lambda: "the token of the password 12\n" * (5 * SIZE // 29),
    "names": lambda: "token='\"" * (5 * SIZE // 8),
    "dashes": lambda: "-" * SIZE,
    "key starts": lambda: "-----BEGIN RSA PRIVATE KEY-----" * (SIZE // 31),
    "an endless key": lambda: "-----BEGIN PRIVATE KEY-----\n" + "A" * SIZE,
    "half tokens": lambda: "eyJaaaaaaaaa." * (SIZE // 13),
    "blanks": lambda: "password" + " " * SIZE,
    "addresses": lambda: "://a:" * (SIZE // 5),
    "dotted": lambda: "password=" + "a." * (SIZE // 2),
}


@pytest.mark.sampled(every=4)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HOSTILE)
def test_megabytes_of_anything_are_done_long_before_the_timeout(name: str) -> None:
    """A pattern that is not linear would take hours here."""
    text = HOSTILE[name]()
    assert len(redact(text)) <= len(text) + len(MARK)


def test_secrets_are_found_anywhere_in_megabytes() -> None:
    key = (
        "-----BEGIN PRIVATE KEY-----\n"
        + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo=\n" * 20
        + "-----END PRIVATE KEY-----"
    )
    lines = ["some words\n" * 500, f"{key}\n", "password: hunter2secret\n", "https://me:pa55word@host/\n"]
    text = "".join(lines) * 120
    shown = redact(text)
    assert shown == redact("".join(lines)) * 120
    assert "QUJD" not in shown
    assert "hunter2secret" not in shown
    assert "pa55word" not in shown
