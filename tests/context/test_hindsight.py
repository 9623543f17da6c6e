"""What was needed after a boundary, and how much of it had been carried."""

from support.histories import assistant, call, ran, user, viewed

from crushpy.context.hindsight import ALL_REPLIES, Hindsight, Past, find_needs
from crushpy.core.messages import Message


def size(message: Message) -> int:
    return 10


def judged(before: list[Message], carried: str, after: list[Message], cwd: str = "/work") -> Hindsight:
    return find_needs(Past(before, cwd), after, size=size).judge(carried)


def needs(found: Hindsight) -> dict[str, bool]:
    return {name.name: name.carried for name in found.names}


def test_a_name_used_later_was_needed_and_is_found_in_what_was_carried() -> None:
    before = [user("start"), *ran("cat a.py", "def compute_tax(): round_half_up()")]
    found = judged(before, "notes: compute_tax", [assistant("I call compute_tax and round_half_up now.")])
    assert needs(found) == {"compute_tax": True, "round_half_up": False}
    assert found.carried == 1
    assert {name.said_by for name in found.names} == {"tool"}


def test_a_name_shown_again_in_between_was_not_needed() -> None:
    before = [*ran("cat a.py", "compute_tax")]
    after = [*ran("cat b.py", "x.compute_tax()"), assistant("I call compute_tax.")]
    assert needs(judged(before, "", after)) == {}


def test_a_name_that_is_new_or_generic_was_not_needed() -> None:
    before = [user("See node_modules and known_name.")]
    found = judged(before, "", [assistant("brand_new_name, node_modules, known_name")])
    assert needs(found) == {"known_name": False}
    assert found.names[0].said_by == "user"


def test_paths_are_compared_relative_to_the_working_folder_and_inside_longer_ones() -> None:
    before = [*ran("ls", "/work/src/shop/tax.py\nsrc/web/app.py")]
    after = [assistant("src/shop/tax.py, then src/web.")]
    assert needs(judged(before, "Files: src/shop/tax.py src/web/app.py", after)) == {
        "src/shop/tax.py": True,
        "src/web": True,
    }


def test_commands_are_counted_apart() -> None:
    before = [*ran("make check_all", "ok")]
    found = judged(before, "$ make check_all", [*ran("make check_all", "ok")])
    assert found.commands == (1, 1)


def test_lines_that_an_edit_reproduces_are_counted_apart() -> None:
    line = "return total * rate / 100"
    edit = assistant("", call("edit", file_path="a.py", old_string=line, new_string="return 0"))
    before = [*ran("cat a.py", f"def f():\n    {line}\n")]
    assert judged(before, "", [edit]).lines == (1, 0)
    assert judged(before, f"    {line}", [edit]).lines == (1, 1)


def test_files_read_again_are_named_with_their_tokens() -> None:
    found = judged([*viewed("/work/src/a.py")], "", [*viewed("/work/src/a.py"), *viewed("/work/src/b.py")])
    assert found.read_again == ("src/a.py",)
    assert found.again_tokens == 10


def test_only_the_first_replies_after_a_boundary_count() -> None:
    before = [user("known_name later_name")]
    after = [
        *(assistant("go on") for _ in range(ALL_REPLIES - 1)),
        assistant("known_name"),
        assistant("later_name"),
    ]
    found = judged(before, "", after)
    assert needs(found) == {"known_name": False}
    assert found.replies == ALL_REPLIES
