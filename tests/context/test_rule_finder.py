"""What counts as a rule in what people write, and that no sentence ends one."""

import os
import subprocess
import sys

import pytest

from crushpy.context.facts import FactReader
from crushpy.context.ledger import Ledger
from crushpy.context.standing_rules import meant_rule
from crushpy.core.messages import Message, Text
from crushpy.core.templates import Templates
from crushpy.engine.compaction.pins_and_rules import rule_phrases

TASKS = """\
Rename the class Foo to Bar everywhere.
Never mind, I found it myself.
Fix the bug in src/cart.py and add a test.
Add a dark mode to the settings page.
Make sure the button is also shown on small screens.
Can you look at every file in src/ and tell me which ones are unused?
Update all dependencies to their newest versions.
Move the date helpers into utils and adapt their callers.
Why does the login page only show after a reload?
Write tests for the parser, at least one per function.
The build only fails on Windows, please investigate.
Ensure the new endpoint returns 404 for unknown ids.
Delete all branches that were merged last month.
Show at most ten results on the first page.
Replace every call of print in the server with the logger.
No, the other file.
Not sure why this happens, have a look.
Keep going.
All tests pass now, commit it.
I always get an empty page when I open the report.
Each user has a list of projects; add a column for it to the table.
It must be something with the cache, can you check?
Explain how the scheduler decides which job runs next.
Split the module into two files, one per class.
Run the tests and push if they are green.
Use the new client in the importer and remove the old one.
Use the reduced rate.
Let's look at the failing test first.
I don't understand what this function is for.
The page should not crash if the list is empty, fix it.
Implement the search as described in docs/search.md.
Only the first column is sorted, sort the others as well.
Every time I save, the cursor jumps to the top.
Please review the last three commits.
Undo that, it was better before.
Try again with a larger timeout.
Where do we store the tokens?
Create a branch, commit this and open a pull request.
Convert the callbacks in api.js to async functions across the whole file.
The total has to include the tax, at the moment it doesn't.
Remove the flag --old, it is no longer used.
Check whether the migration works on an empty database.
Bring the README up to date.
The export is too slow, find out why and make it at least twice as fast.
Give me a summary of what changed since yesterday.
Port this shell script to Python without adding features.
There must be a race somewhere in the worker, add logging to find it.
Looks good, go on with step 2.
Log in as admin and try to delete a user.
In the sidebar, show only projects of the current team.
Sort the imports in every module of the package.
Translate the error messages into German.
Instead of a list return a dictionary from load_users.
From the logs I see that the job never starts, what is wrong?
Don't worry about the style, I will fix it later.
Change the default port to 9000.
Document the environment variables in docs/setup.md.
Generate a migration that adds the column origin to messages.
Compare both approaches and tell me which one you would choose.
We don't have a test for this yet, write one.
"""
RULES = """\
Let's not add new dependencies.
Can we not commit to main?
Don't change anything, just explain.
Make sure you run the linter first.
For now don't write any code, just plan.
Let's not use mocks in these tests.
could you please not reformat files you don't touch
no emojis please
never use any
I'd rather not have comments in the code.
Stop adding comments to every line.
always use bun, not npm
we use tabs here
please keep the diff small
Do not run git commands yourself.
i don't want you to touch the database
you should never edit generated files
All public functions need docstrings.
Commit messages must be in English.
Before you commit, run make check.
Ask me before you delete anything.
Only work in packages/api.
don't push until i say so
From now on, answer in German.
Tests go into tests/, never next to the code.
I prefer small commits.
No new dependencies without asking.
Use port 8443.
Stick to the existing code style.
You can read anything but don't write outside of src.
make sure to ask before you install something
We support Python 3.9, so no match statements.
don't use any external libraries
Every endpoint must have a test.
Don't do anything yet, wait for my ok.
Respect the public API: it must not change.
remember to update the changelog with every change
Please be brief.
Secrets must never be logged.
Leave the vendor folder alone.
"""
REVOKING = """\
The production database no longer accepts connections.
Forget the report, look at the chart instead.
From now on the job runs every night, why did it fail?
The server does not answer any more.
Drop the table users_old.
Never mind the warning about tabs.
We moved to pnpm, the lockfile of npm is gone.
The rule about commits in the handbook changed.
Scrap the branch and start again from main.
It is fine that the linter complains about that file.
Die Datenbank nimmt keine Verbindungen mehr an.
Vergiss den Bericht, schau dir stattdessen die Grafik an.
Der Server antwortet nicht mehr.
Ab jetzt läuft der Job jede Nacht, warum schlug er fehl?
Lösche die Tabelle users_old.
Der Zweig main wird nicht mehr gebaut.
Doch, der Commit ist schon auf main.
Die Regel im Handbuch gilt nicht mehr.
Nimm stattdessen die andere Datei.
Es ist in Ordnung, dass der Linter meckert.
La base de données n'accepte plus de connexions.
Oublie le rapport, regarde plutôt le graphique.
Le serveur ne répond plus.
Désormais le job tourne chaque nuit, pourquoi échoue-t-il ?
Supprime la table users_old.
La branche main n'est plus construite.
La règle du manuel n'est plus valable.
Prends plutôt l'autre fichier.
Laisse tomber, je l'ai trouvé.
C'est normal que le linter se plaigne.
La base de datos ya no acepta conexiones.
Olvida el informe, mira mejor el gráfico.
El servidor ya no responde.
A partir de ahora el trabajo corre cada noche, ¿por qué falla?
Borra la tabla users_old.
La rama main ya no se compila.
La regla del manual ya no vale.
Toma el otro archivo en su lugar.
Déjalo, ya lo encontré.
Está bien que el linter se queje.
データベースはもう接続を受け付けません。
レポートは忘れて、代わりにグラフを見てください。
サーバーがもう応答しません。
これからジョブは毎晩動きますが、なぜ失敗しますか?
テーブル users_old を削除してください。
main ブランチはもうビルドされません。
ハンドブックの規則はもう有効ではありません。
代わりに別のファイルを使います。
もういいです、見つかりました。
リンターの警告は問題ありません。
数据库不再接受连接。
忘掉报告，改看图表吧。
服务器不再响应。
从现在起任务每晚运行，为什么失败？
删除表 users_old。
main 分支不再构建。
手册里的规则不再有效。
改用另一个文件吧。
算了，我自己找到了。
检查器的警告没关系。
"""
PLAN = """\
Never push to main. Implement the following plan:

# Plan: tabs

All views use one list. Each provider must declare its own name.

## Changes

- Always return the first match
- Keep the old name for the column

| file | note |
| --- | --- |
| a.py | must not change |

## Verification

1. `make lint` - no issues
2. Never merge before CI is green
"""
PHRASES = rule_phrases(Templates())()


def found(text: str) -> list[str]:
    return [statement.text for statement in PHRASES.find(text) if statement.rule]


def listed(*texts: str) -> list[tuple[str, str]]:
    """The rules of a conversation, and how each ended."""
    said = [Message(f"m{number}", "user", (Text(text),)) for number, text in enumerate(texts, 1)]
    facts = FactReader("/work", (), lambda: PHRASES).extract_all(said)
    rules = Ledger().merged(facts, phrases=PHRASES).rules or ()
    return [(rule.text, rule.ended) for rule in rules]


def test_of_sixty_ordinary_tasks_at_most_one_is_taken_as_a_rule() -> None:
    tasks = TASKS.splitlines()
    assert len(tasks) == 60
    assert len([task for task in tasks if found(task)]) <= 1


@pytest.mark.parametrize("text", RULES.splitlines())
def test_everyday_wording_of_a_rule_is_found(text: str) -> None:
    assert found(text) == [text]


def test_a_request_to_end_a_rule_is_understood_in_another_form_of_its_word() -> None:
    said = [Message(f"m{number}", "user", (Text(text),)) for number, text in enumerate(RULES.splitlines(), 1)]
    facts = FactReader("/work", (), lambda: PHRASES).extract_all(said)
    rules = Ledger().merged(facts, phrases=PHRASES).rules or ()
    meant = meant_rule("Forget the rule about pushing.", rules)
    assert meant is not None and meant.text == "don't push until i say so"


def test_forty_rules_all_apply_beside_sixty_sentences_with_revoking_words() -> None:
    rules, others = RULES.splitlines(), REVOKING.splitlines()
    assert (len(rules), len(others)) == (40, 60)
    held = dict(listed(*rules, *others))
    assert [held[rule] for rule in rules] == [""] * 40


def test_a_document_has_rules_only_before_it_and_below_headings_that_say_so() -> None:
    assert found(PLAN) == ["Never push to main."]
    assert found(
        f"{PLAN}\n## Rules\n\n- one class per file\n\nNever use tabs.\n\n## Notes\n\nNever rest."
    ) == [
        "Never push to main.",
        "one class per file",
        "Never use tabs.",
    ]
    assert found("# Task\n\nDo it.\n\nConstraints:\n- no new packages") == ["no new packages"]


@pytest.mark.parametrize(
    "label",
    [
        "Working rules from the user:",
        "What I care about",
        "Ground rules for the import (all sessions):",
        "Do the first step. House rules:",
        "## How we work on this",
    ],
)
def test_a_label_may_say_what_its_rules_are_for(label: str) -> None:
    assert found(f"{label}\n- errors are wrapped once\n- tabs") == ["errors are wrapped once", "tabs"]


def test_a_label_takes_nothing_from_the_sentences_before_it() -> None:
    assert found("Never use tabs. House rules:\n- one class per file") == [
        "Never use tabs.",
        "one class per file",
    ]


def test_items_that_a_label_excludes_are_carried_with_it() -> None:
    assert found("Out of scope:\n- Excel files") == ["Out of scope:\nExcel files"]


@pytest.mark.parametrize("line", ["What is left", "I read about the rules, and saw"])
def test_another_line_before_a_list_is_no_label(line: str) -> None:
    assert found(f"{line}\n- errors in the parser\n- a picture") == []


def test_sentences_are_told_apart_without_capital_letters() -> None:
    text = "the page is too slow. never load all rows. it was faster before... but only a bit"
    assert found(text) == ["never load all rows."]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Look at the wiki. if you're not sure ask me", True),
        ("I'm not sure about the type, look it up", False),
        ("can we make sure this never happens again?", True),
        ("I think you are overengineering this", True),
        ("Is this overengineering?", False),
        ("Please fix it. We no longer support Python 3.8.", True),
        ("The page no longer works.", False),
        ("Can we not use eval?", True),
        ("Should we always use eval?", False),
        ("I think it's better not to store names in the cache.", True),
        ("I think every name is stored in the cache.", False),
        ("use hex values in all of the themes, no indices!", True),
        ("The helper is in the cli package, not in core.", False),
        ("shouldn't the url be local", False),
        ("All five of them have a cache.", False),
        ("All helpers in one file.", True),
        ("All of them must have a cache.", True),
        ("No reason those need to be the same.", False),
        ("NO!", False),
        ("No. Read the page again.", False),
        ("Be sure to say that it needs version 6.", False),
        ("Be sure to never skip the linter.", True),
        ("Here is a field that is set but never used.", False),
        ("No further action needed.", False),
        ("That should never happen.", False),
        ("Let's keep the names as they are.", True),
        ("Show me the plan before you start.", True),
        ("Requirements:\n- Layout:", False),
        ("Whenever you change the schema, also update docs/schema.md.", True),
        ("I'd prefer if you didn't reformat files that you don't change.", True),
        ("It should never have been merged, revert it.", False),
        ("What does HTTP mean? Answer in one line.", False),
        ("Always answer in one line.", True),
        ("Write the report, and call me when it is done.", False),
        ("Check whether users may not be deleted twice.", False),
        ("Was ist 3 + 4? Antworte nur mit der Zahl.", False),
        ("Antworte auf Deutsch.", True),
        ("¿Cuál es el puerto? Responde en una línea.", False),
        ("Responde en español.", True),
        ("Responde en un tono formal.", True),
        ("Write in the imperative mood.", True),
        ("Treat this repo as production.", True),
        ("Stay on this branch.", True),
        ("Call me when you're unsure.", True),
        ("If a test fails, fix the code.", True),
        ("When that worker reports done, inspect its diff before it pushes.", True),
        ("If you want, add a test.", False),
        ("When you're done, push the branch.", False),
        ("When I press save, open the dialog.", False),
        ("If you need to look something up, the wiki is in docs/.", True),
        ("- Should we support Windows? → No, not in this version.", True),
        ("- Do the tests pass? → yes", False),
        ("i dont want new helper files", True),
        ("this doesnt work, cant you see the page?", False),
        ("pls use pnpm", True),
        ("Dont forget to update the changelog.", True),
        ("and from now on no unbounded label on any metric", True),
        ("Good, for the record: no globals in this crate.", True),
        ("The index must be built concurrently.", False),
        ("Every bug fix needs a test.", True),
        ("Each row shows the name and its colour.", False),
        ("No webgl pls, half our readers have old phones.", True),
        ("Everything is slow today.", False),
        ("Until I come back to you nothing gets built there.", True),
        ("テストがいつも失敗します。直してください。", False),
        ("いつも英語で答えてください。", True),
    ],
)
def test_a_question_or_a_report_is_a_rule_only_by_firm_words(text: str, rule: bool) -> None:
    assert bool(found(text)) is rule


def test_the_list_is_the_same_under_every_hash_seed() -> None:
    code = (
        "from tests.context.test_rule_finder import RULES, REVOKING, TASKS, listed\n"
        "print(listed(*(RULES + REVOKING + TASKS).splitlines()))"
    )
    lists = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONUTF8": "1"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(lists) == 1 and "no emojis please" in lists.pop()
