"""The tools that read, write and edit files, and what they keep from a model (SPEC 3.8)."""

import stat

import pytest

from engine.execution.tools import toolbelt
from engine.execution.tools.folder_jail import MAX_FILE_BYTES
from engine.execution.tools.toolbelt import make_unified_diff, replace_once
from tests.execution.tools.belt_world import BeltWorld


def test_the_parts_of_a_long_file_are_the_whole_file(world: BeltWorld):
    whole = "".join(f"{number} {'x' * 90}\n" for number in range(2_000))
    world.write_file("long.txt", whole)
    parts = []
    note = "go on with first_line 1]"
    while "go on with" in note:
        first_line = int(note.rpartition(" ")[2].rstrip("]"))
        answer = world.get_answer("read", path="long.txt", first_line=first_line)
        assert len(answer) <= toolbelt.MAX_RESULT_CHARS + 200
        part, _, note = answer.rpartition("[lines ")
        parts.append(part)
    assert "".join(parts) == whole
    assert world.get_answer("read", path="long.txt", first_line=2_001).endswith("lines; nothing from line 2001]")
    world.write_file("long.txt", "x" * 60_000)
    assert world.get_answer("read", path="long.txt").endswith("\n[line 1 of 1 has 60,000 characters, cut here]")
    world.write_file("long.txt")
    assert world.get_answer("read", path="long.txt") == "[the file is empty]"


def test_a_file_that_is_too_large_is_neither_read_nor_written(world: BeltWorld):
    with (world.folder / "huge.bin").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    assert "more than 10,485,760" in world.get_problem("read", path="huge.bin")
    assert "more than 10,485,760" in world.get_problem("write", path="new.txt", content="x" * (MAX_FILE_BYTES + 1))
    assert not (world.folder / "new.txt").exists()


def test_write_replaces_a_file_and_keeps_its_mode(world: BeltWorld):
    file = world.write_file("run.sh", "old")
    file.chmod(0o755)
    assert world.get_answer("write", path="run.sh", content="new") == "wrote run.sh, 1 line"
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o755


def test_read_lists_a_folder(world: BeltWorld):
    for name in ("run.sh", "a/b.py"):
        world.write_file(name, "x")
    assert world.get_answer("read", path=".").splitlines() == ["a/", "run.sh"]


def test_an_edit_of_a_file_that_changed_meanwhile_is_refused(world: BeltWorld, monkeypatch: pytest.MonkeyPatch):
    file = world.write_file("a.txt", "one two")

    def replace_after_a_save(data: bytes, old: str, new: str) -> tuple[bytes, int]:
        file.write_text("one two, and what somebody else wrote")
        return replace_once(data, old, new)

    monkeypatch.setattr(toolbelt, "replace_once", replace_after_a_save)
    assert "changed meanwhile" in world.get_problem("edit", path="a.txt", old_text="one", new_text="1")
    assert file.read_text() == "one two, and what somebody else wrote"


@pytest.mark.parametrize(
    "before, old, new, after",
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\n", "b", "b\nc", b"a\r\nb\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n"),
        (b"a\nb\r\nc\n", "a", "x\ny", b"x\ny\nb\r\nc\n"),
        ("\ufeffa\n".encode(), "a", "b", "\ufeffb\n".encode()),
        (b"gr\xfc\xdf a", "a", "b", b"gr\xfc\xdf b"),
    ],
)
def test_a_replacement_keeps_line_ends_and_other_bytes(before: bytes, old: str, new: str, after: bytes):
    assert replace_once(before, old, new)[0] == after


@pytest.mark.parametrize(
    "before, after, changes",
    [
        pytest.param("a\r\nb\r\n", "a\nb\n", ["-a␍", "-b␍", "+a", "+b"], id="line ends"),
        pytest.param("a\n", "a", ["-a", "+a", "\\ No newline at end of file"], id="the last newline"),
        pytest.param("a\u2028b\fc\n", "a\u2028b\fd\n", ["-a\u2028b\fc", "+a\u2028b\fd"], id="one line"),
        pytest.param("", "a\n", ["+a"], id="a new file"),
    ],
)
def test_a_diff_shows_each_change_that_git_shows(before: str, after: str, changes: list[str]):
    assert make_unified_diff(before, after, "cart.py").split("\n")[3:] == changes


KEY = "sk-ant-0123456789abcdefghij"


def test_a_key_in_a_file_is_cut_for_the_model(world: BeltWorld):
    world.write_file("settings.py", f'DEBUG = True\nAPI_KEY = "{KEY}"\n')
    assert world.get_answer("read", path="settings.py") == 'DEBUG = True\nAPI_KEY = "[secret cut]"\n'
    assert KEY not in world.get_answer("exec", command="cat settings.py")


def test_reading_from_the_middle_shows_no_part_of_a_private_key(world: BeltWorld):
    world.write_file(
        "id_rsa", "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKC\nAQEA7bq9\n-----END RSA PRIVATE KEY-----\n"
    )
    assert "MIIE" not in world.get_answer("read", path="id_rsa", first_line=2, lines=1)


def test_the_placeholder_of_a_key_is_not_written_over_it(world: BeltWorld):
    """A model that writes back what it read would destroy the operator's key."""
    file = world.write_file("settings.py", f'DEBUG = True\nAPI_KEY = "{KEY}"\n')
    text = world.get_answer("read", path="settings.py")
    assert "leave that place" in world.get_problem("write", path="settings.py", content=text.replace("True", "False"))
    assert "leave that place" in world.get_problem(
        "edit", path="settings.py", old_text="DEBUG", new_text='X = "[secret cut]"\nDEBUG'
    )
    assert world.get_answer("edit", path="settings.py", old_text="True", new_text="False")
    assert file.read_text() == f'DEBUG = False\nAPI_KEY = "{KEY}"\n'
    own = world.write_file("about.md", "[secret cut] stands for a key\n")
    assert world.get_answer("write", path="about.md", content="[secret cut] stands for a key or a password\n")
    assert own.read_text().endswith("or a password\n"), "a file may speak of it"
