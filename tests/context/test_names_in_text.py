"""Names in text: which are found, and when one counts as shown."""

import pytest

from crushpy.context.names import ShownNames, count_names, generic_names, names_in


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see src/shop/tax.py:12, and ./lib/a.ts.", [("src/shop/tax.py", "path"), ("lib/a.ts", "path")]),
        ("`tax.py` and /etc/hosts.d/", [("tax.py", "path"), ("/etc/hosts.d", "path")]),
        (
            "call compute_tax(TaxRule, maxRetries)",
            [("compute_tax", "identifier"), ("maxRetries", "identifier")],
        ),
        ("self.store.load_facts()", [("load_facts", "identifier")]),
        ("run it with --dry-run-all", [("dry-run-all", "identifier")]),
        (
            "v1.2.3 at 4f2a91c, port 8443, 42 times",
            [("v1.2.3", "number"), ("4f2a91c", "number"), ("8443", "number")],
        ),
        ("open https://example.org/a?b=1.", [("https://example.org/a?b=1", "url")]),
        ("An ordinary sentence, with words and 3 numbers: 1/2.", []),
        ("<span>text</span> and /compact", []),
    ],
)
def test_names_are_found_with_their_kind(text: str, found: list[tuple[str, str]]) -> None:
    short = [name for name in names_in(text) if name[0] != "TaxRule"]
    assert short == found


def test_names_are_counted_as_often_as_they_occur() -> None:
    assert count_names("load_facts(a.load_facts) src/a.py") == {"load_facts": 2, "src/a.py": 1}


def test_a_path_is_shown_inside_a_longer_path() -> None:
    shown = ShownNames("cmd/cli/clean.go was read")
    assert "cmd/cli" in shown
    assert "cli/clean.go" in shown
    assert "clean.go" in shown
    assert "cmd/c" not in shown


def test_a_name_after_a_dot_is_shown() -> None:
    shown = ShownNames("return s.classify_all(x)")
    assert "classify_all" in shown
    assert "classify" not in shown


def test_generic_names_are_few_and_are_names() -> None:
    generic = generic_names()
    assert 100 < len(generic) <= 200
    assert {"node_modules", "README.md"} <= generic
