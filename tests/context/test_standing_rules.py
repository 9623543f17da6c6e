"""Standing rules: found by phrases in the user's own words, carried verbatim, ended only by the user."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crushpy.context.facts import FactReader
from crushpy.context.ledger import Ledger
from crushpy.context.standing_rules import ADDED, WITHDRAWN, RuleFact, carry_rules, meant_rule, replaced_rule
from crushpy.core.messages import Message, Note, Text
from crushpy.core.templates import TemplateProblem, Templates
from crushpy.engine.compaction.pins_and_rules import rule_phrases

PHRASES = rule_phrases(Templates())()


def rules(text: str) -> list[str]:
    return [extension.text for extension in PHRASES.find(text) if extension.rule]


def said(*texts: str | Note) -> list[Message]:
    parts = [Text(text) if isinstance(text, str) else text for text in texts]
    return [Message(f"m{n}", "user", (part,), 1_700_000_000.0 + n) for n, part in enumerate(parts, 1)]


def book(*texts: str | Note) -> list[RuleFact]:
    facts = FactReader("/work", (), lambda: PHRASES).extract_all(said(*texts))
    return list(Ledger().merged(facts, phrases=PHRASES).rules or ())


def valid(*texts: str | Note) -> list[str]:
    return [rule.text for rule in book(*texts) if not rule.ended]


def tokens(text: str) -> int:
    return len(text) // 4


@pytest.mark.parametrize(
    "text",
    [
        "Never push to main.",
        "Use pnpm, not npm.",
        "Run the tests before every commit.",
        "Secrets never go into logs.",
        "You can't use eval here.",
        "Fass die Datei config.yml nicht an.",
        "N'utilise que des espaces.",
        "Raak de map vendor niet aan.",
        "Please don't touch config.toml.",
        "SAFETY RULE: Keep bleach away from the prep counter.",
        "USER PREFERENCE: The user's contact code: ABC-1234.",
        "Bitte antworte immer auf Deutsch.",
        "N'utilise jamais npm dans ce projet.",
        "Nunca borres archivos sin preguntar.",
        "Nunca faça push para a main.",
        "Non usare mai print per il debug.",
        "Gebruik nooit tabs in dit project.",
        "Nigdy nie commituj bez testów.",
        "Никогда не удаляй файлы без спроса.",
        "绝不要提交到主分支。",
        "必ず日本語で回答してください。",
        "절대 main에 푸시하지 마세요.",
        "Use British spelling.",
        "Please be concise.",
        "Everything has to work offline.",
        "Check with me before pushing.",
        "Customer data stays on this machine.",
        "One commit per feature.",
        "Verwende britische Schreibweise.",
        "Behandle Warnungen als Fehler.",
        "Utilise l'orthographe britannique.",
        "Attends mon accord avant de déployer.",
        "Usa ortografía británica.",
        "Seja breve.",
        "Non puoi usare Docker.",
        "Blijf van vendor/ af.",
        "Używaj brytyjskiej pisowni.",
        "Работай только в src/.",
        "删除任何东西之前先问我。",
        "使用 8080 端口。",
        "コミットのたびにテストを実行してください。",
        "커밋할 때마다 테스트를 실행하세요.",
    ],
)
def test_a_rule_is_found_in_each_shipped_language(text: str) -> None:
    assert rules(text) == [text]


@pytest.mark.parametrize(
    "text",
    [
        "Why does it never finish?",
        "The worker never finishes its job.",
        "I don't know what happened.",
        "Fix the bug in src/a.py and add a test.",
        "use the reduced rate in src/cart.py",
        "Write the notes.",
        "Use the new API in the client module and adapt its tests.",
        "It works on my machine but not on the server.",
        "I only wanted to know why.",
        "Behebe den Fehler in tax.py.",
        "Corrige le bug dans tax.py.",
        "修复 tax.py 里的错误。",
        "tax.py のバグを直してください。",
        'He said "never push to main" yesterday.',
        "The log says `you must never do this`.",
        "```\nNever run this.\n```",
        "    never_do_this()  # must stay",
        "> Never push to main",
        "I ran `make`:\nYou must never run this as root.\nAlways use sudo.",
        "2026-11-16 10:00:01 WARN never retry this",
        "ValueError: must not be empty",
        "No, that's wrong.",
        "Non, la fonction est fausse.",
        "I always get an empty page.",
        "error: you must specify a value",
        "<system-reminder>\nNever mention this.\n</system-reminder>",
        "<bash-stdout>you must always log in</bash-stdout>",
        '<file path="a.md">\nAlways use tabs.\n</file>',
    ],
)
def test_questions_reports_and_foreign_text_are_no_rules(text: str) -> None:
    assert rules(text) == []


def test_pasted_text_makes_no_rule() -> None:
    text = "Look at this:\nNever push.\nAlways pull.\nNever merge on Fridays."
    start = text.index("Never push")
    pasted = (start, text.index("Never merge"))
    message = Message("m1", "user", (Text(text, (pasted,)),))
    found = FactReader("/work", (), lambda: PHRASES).extract(message)
    assert [statement.text for statement in found.statements or ()] == ["Never merge on Fridays."]


def test_sentences_are_not_split_in_file_names_or_numbers_or_after_a_colon() -> None:
    assert rules("Look at src/foo.py. Never touch v1.2.3 of lib.so: it is signed. Thanks.") == [
        "Never touch v1.2.3 of lib.so: it is signed."
    ]
    assert rules("Never use tools e.g. Docker here. Run it.") == ["Never use tools e.g. Docker here."]
    assert rules("HARD CONSTRAINT: The cap is $500. It holds for all.") == [
        "HARD CONSTRAINT: The cap is $500. It holds for all."
    ], "a label covers its line"


def test_a_list_below_a_label_or_a_phrase_is_a_list_of_rules() -> None:
    assert rules("Never push. Explain:\nwhat it does") == ["Never push."]
    assert rules("Always use this form:\n\nA, then B") == ["Always use this form:"]
    assert rules("Rules:\n- use tabs\n- see docs/a.md\n\nThen go on.") == ["use tabs", "see docs/a.md"]
    assert rules("Never:\n1. push to main\n2. delete files") == [
        "Never:\npush to main",
        "Never:\ndelete files",
    ]
    assert rules("You must never do these things:\n- push to main") == [
        "You must never do these things:\npush to main"
    ]


def test_a_list_below_a_label_goes_on_after_the_text_of_an_item() -> None:
    text = "Layout to enforce:\n- sorted by date\n  as in old/. Never move them.\n\n- index.jsonl wins\nDone."
    assert rules(text) == ["sorted by date", "Never move them.", "index.jsonl wins"]


def test_a_rule_has_the_id_and_the_time_of_its_message() -> None:
    (rule,) = book("Never push to main.")
    assert (rule.number, rule.message_id, rule.at) == (1, "m1", 1_700_000_001.0)
    carried = carry_rules([rule], 1_500, tokens)
    assert "- Never push to main. [m1, 2023-11-14 22:13]" in carried.text and not carried.warning


@pytest.mark.parametrize(
    ("before", "later"),
    [
        (
            "You are not allowed to access the production database.",
            "The production database no longer accepts connections.",
        ),
        ("Always run the gateway service on port 8417.", "Forget the rule about port 8417."),
        ("Always run the gateway service on port 8417.", "The gateway service no longer needs 8417."),
        ("Always run the gateway service on port 8417.", "Always run the gateway service on port 9000."),
        ("HARD CONSTRAINT: Report all times in UTC.", "From now on, report all times in CET."),
        ("Don't touch vendor/.", "It's fine to edit vendor/ now."),
        ("Commit nie auf main.", "Vergiss main, ab jetzt stattdessen auf dev."),
        ("No uses tabuladores.", "El proyecto ya no usa tabuladores."),
        ("Ne touche jamais au dossier vendor.", "Le dossier vendor n'existe plus, oublie-le."),
        ("テストは必ず実行してください。", "テストはもう必要ありません。"),
        ("不要修改数据库。", "数据库不再接受连接。"),
    ],
)
def test_no_sentence_ends_a_rule(before: str, later: str) -> None:
    assert before in valid(before), "it is a rule"
    assert before in valid(before, later)


def test_a_rule_and_its_successor_are_both_carried_in_order() -> None:
    successor = "Forget port 8080, use 9090 instead."
    assert valid("Always use port 8080.", successor) == ["Always use port 8080.", successor]


def test_a_rule_that_an_earlier_version_ended_is_restored_by_adding_it() -> None:
    ended = RuleFact(1, "Never push to main.", ended="superseded")
    note = Note(f"{ADDED}\n{ended.text}", about="rule")
    facts = FactReader("/work", (), lambda: PHRASES).extract_all(said("Go on.", note))
    rules = Ledger(rules=(ended,)).merged(facts, phrases=PHRASES).rules or ()
    assert [(rule.number, rule.ended) for rule in rules] == [(1, "superseded"), (2, "")]


def test_the_user_adds_and_withdraws_rules_by_notes() -> None:
    added = Note(f"{ADDED}\nSpeak like a pirate", about="rule")
    gone = Note(f"{WITHDRAWN}\nNever push to main.", about="rule_withdrawn")
    found = book("Never push to main.", added, gone, "Never push to main.")
    assert [(rule.text, rule.ended, rule.added) for rule in found] == [
        ("Never push to main.", "withdrawn", False),
        ("Speak like a pirate", "", True),
        ("Never push to main.", "", False),
    ]


def test_facts_and_ledgers_stored_without_rules_are_searched_once() -> None:
    old = FactReader("/work").extract_all(said("Never push to main.", "Go on."))
    before = Ledger().merged(old)
    assert before.rules is None
    after = before.merged((), phrases=PHRASES)
    assert [rule.text for rule in after.rules or ()] == ["Never push to main."]
    again = Ledger().merged(old, phrases=PHRASES)
    assert again.rules == after.rules


def test_rules_left_out_are_counted() -> None:
    many = [RuleFact(n, f"Never use port {n} for anything.", f"m{n}", 1.0) for n in range(1, 101)]
    assert carry_rules(many[:20], 400, tokens).left_out == 0
    near = carry_rules(many[:30], 300, tokens)
    assert near.left_out == 0 and "beyond that some would be left out" in near.warning
    short = carry_rules([*many, RuleFact(101, "Never mine", added=True)][::-1], 300, tokens)
    assert short.left_out > 50 and f"{short.left_out} of 101 standing rules" in short.warning
    assert (
        tokens(short.text) <= 300 and "- Never mine" in short.text and f"({short.left_out} more" in short.text
    )
    assert "port 100 " in short.text and "port 1 " not in short.text, "the newest are carried"
    assert carry_rules(many, 5, tokens).left_out == 100
    assert carry_rules(many[:1], 300, tokens, dropped=3).left_out == 3


def test_prohibitions_are_left_out_last_and_the_others_are_named() -> None:
    bans = [RuleFact(n, f"Never use port {n} for anything.") for n in range(1, 21)]
    mine = [RuleFact(n, f"Use port {n} for everything.", added=True) for n in range(21, 31)]
    carried = carry_rules([*bans, *mine], 220, tokens)
    assert carried.text.count("Never use port") == 20 and 0 < carried.left_out < 10
    assert "(Use port 2" in carried.warning and "Never" not in carried.warning


@pytest.mark.parametrize(
    ("new", "old", "replaces"),
    [
        ("Use port 9000.", "use port 8443", True),
        ("Never use port 9000.", "Never use port 8443.", True),
        ("Always answer in German.", "Always answer in English.", True),
        ("ポート9000を使ってください。", "ポート8443を使ってください。", True),
        ("Never push to main.", "Never push to dev.", False),
        ("Use port 9000 for tests.", "Use port 8443.", False),
        ("Use tabs.", "Be brief.", False),
    ],
)
def test_a_rule_may_replace_one_that_differs_in_a_single_value(new: str, old: str, replaces: bool) -> None:
    earlier = RuleFact(1, old)
    assert replaced_rule(new, [earlier]) == (earlier if replaces else None)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Forget the rule about commits.", 1),
        ("Cancel the rule about port 8443.", 2),
        ("Vergiss die Regel mit dem Port.", 2),
        ("请忘掉关于数据库的规则。", 3),
        ("Forget the rule about tabs.", 0),
    ],
)
def test_a_sentence_that_asks_to_end_a_rule_means_the_one_it_shares_words_with(text: str, meant: int) -> None:
    texts = ("Commit only with tests.", "Always use port 8443.", "不要修改数据库。")
    rules = [RuleFact(number, text) for number, text in enumerate(texts, 1)]
    assert [found.edit for found in PHRASES.find(text)] == ["asked"]
    assert (found.number if (found := meant_rule(text, rules)) else 0) == meant


@pytest.mark.slow
def test_ten_thousand_rules_and_contradictions_are_bounded() -> None:
    prompt = "\n".join(f"From now on never use port {n} for gateway {n}." for n in range(10_000, 20_000))
    found = FactReader("/work", (), lambda: PHRASES).extract_all(said(prompt, "Always use it. Never use it."))
    ledger = Ledger().merged(found, phrases=PHRASES)
    assert len(ledger.rules or ()) <= 2_000 and ledger.dropped["rules"] >= 8_000
    held = [rule.text for rule in ledger.rules or () if not rule.ended]
    assert held[-2:] == ["Always use it.", "Never use it."]


@pytest.mark.parametrize(
    ("text", "words"),
    [("[en]\nstart = [1]", "start in [en]"), ("[en]\nrule = ''", "rule in [en]"), ("x = = 1", "line 1")],
)
def test_a_broken_file_is_named_and_the_shipped_one_used(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "rules.toml").write_text(text)
    problems: list[TemplateProblem] = []
    templates = Templates(tmp_path, on_problem=problems.append)
    used = rule_phrases(templates)()
    assert [found.text for found in used.find("Never push. The door is open.")] == ["Never push."]
    assert words in problems[0].message and "rules.toml" in problems[0].message


def test_a_file_of_the_users_own_replaces_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text("[tlh]\nphrase = 'not ever, jupa'")
    found = rule_phrases(Templates(tmp_path))().find("Do not ever push. Never pull.")
    assert [entry.text for entry in found] == ["Do not ever push."]


def test_kinds_of_an_earlier_version_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text("[en]\nstart = 'never'\nrevoke = 'forget'\ncommon = 'the'\n")
    problems: list[TemplateProblem] = []
    used = rule_phrases(Templates(tmp_path, on_problem=problems.append))()
    assert [found.text for found in used.find("Never push. Forget it.")] == ["Never push."]
    assert not problems


@given(st.text(st.sampled_from("a:. \n\t-#`\"'<>/1never,?！。「」不要 I ran file")))
def test_found_rules_stand_verbatim_in_any_text(text: str) -> None:
    for found in PHRASES.find(text):
        assert all(line in text for line in found.text.splitlines())
