"""Debugging, conflict markers and TODOs that your own changes added (SPEC 2.11)."""

from datetime import UTC, datetime

from engine.git import Git
from engine.git.own_changes import find_own_changes
from engine.git.reader import GitReader
from tests.support.repository import Repository

LEFTOVERS = {
    "a.py": ('x = 1\nbreakpoint()\n# breakpoint()\ntext = """\nbreakpoint()\n"""\nprint(x)\n', ["a.py:2"]),
    "b.js": ("debugger\n", ["b.js:1"]),
    "conflict.txt": ("<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n", ["conflict.txt:1"]),
    "half.txt": ("<<<<<<< ours\na\n", []),
    "manual.md": ("```\n<<<<<<< ours\n=======\n>>>>>>> theirs\n```\nbreakpoint()\n# TODO\n", []),
    "src/lib.rs": ("dbg!(x);\n", ["src/lib.rs:1"]),
    "tests/lib.rs": ("dbg!(x);\n", []),
    "vendor/b.js": ("debugger\n", []),
}
"""The text of each file, and the places of the leftovers in it."""


def test_debugging_that_was_left_in_is_told_from_lines_that_look_like_it(repository: Repository):
    repository.commit("one", {"z.py": "z = 1\n"})
    repository.git("switch", "-q", "-c", "work")
    repository.commit("all", {"older.py": "# TODO\n", **{path: text for path, (text, _) in LEFTOVERS.items()}})
    repository.write("fresh.py", "# TODO\n")
    expected = sorted(place for _, places in LEFTOVERS.values() for place in places)
    expected.sort(key=lambda place: not place.startswith("conflict"))
    leftovers = find_own_changes(
        Git(repository.path), GitReader().read(repository.path), datetime.fromtimestamp(0, UTC)
    ).leftovers
    assert [leftover.place for leftover in leftovers] == [*expected, "fresh.py:1"]
