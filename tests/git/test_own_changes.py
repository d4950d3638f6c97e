"""Your own work as one patch within a budget, and the leftovers in it: debugging, markers, and documents that name
removed things (SPEC 2.1)."""

from datetime import UTC, datetime

from engine.git import Git
from engine.git.own_changes import find_own_changes
from engine.git.patch import MAX_BYTES, MAX_LINES, read_own_patch, read_patch
from engine.git.reader import GitReader
from tests.support.repository import Repository

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def read_mentions(repository: Repository) -> list[tuple[str, int, str, str]]:
    """File, line, old and new name of each mention of something removed."""
    state = GitReader().read(repository.path)
    changes = find_own_changes(Git(repository.path), state, LONG_AGO)
    return [(mention.path, mention.line, mention.old, mention.new) for mention in changes.mentions]


def test_documentation_that_names_removed_code_is_found(repository: Repository):
    repository.commit(
        "one",
        {
            "src/cart.py": "def old_total(prices):\n    return sum(prices)\n\ndef total():\n    pass\n",
            "src/cli.py": 'add("--old-flag", help="x")\n',
            "conf.toml": "old_key = 1\nkept = 2\n",
            "README.md": "Call `old_total(x)`.\nSee src/cart.py.\nSet `old_key`.\nTotal of it.\nPass --old-flag now.\n"
            "`old_total` was removed in 2.0.\n",
            "CHANGELOG.md": "old_total is new\n",
        },
    )
    repository.git("mv", "src/cart.py", "src/basket.py")
    repository.write("src/basket.py", "def new_total(prices):\n    return sum(prices)\n\ndef total():\n    pass\n")
    repository.write("src/cli.py", 'add("--new-flag", help="x")\n')
    repository.write("conf.toml", "kept = 2\n")
    repository.git("add", "-A")
    assert read_mentions(repository) == [
        ("README.md", 1, "old_total", "new_total"),
        ("README.md", 2, "src/cart.py", "src/basket.py"),
        ("README.md", 3, "old_key", ""),
        ("README.md", 5, "--old-flag", "--new-flag"),
    ]
    repository.write("other.py", "old_total = 1\n")
    assert ("README.md", 1, "old_total", "new_total") not in read_mentions(repository)


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
    leftovers = find_own_changes(Git(repository.path), GitReader().read(repository.path), LONG_AGO).leftovers
    assert [leftover.place for leftover in leftovers] == [*expected, "fresh.py:1"]


def test_untracked_files_are_read_within_one_budget(repository: Repository):
    """Many large files that nobody ignores must cost no more than a few."""
    repository.commit("one", {"a.py": "a = 1\n"})
    text = "breakpoint()\n" + "x = 'words of forty characters, more or less'\n" * 9_000
    for number in range(20):
        repository.write(f"made/{number:02}.py", text)
    repository.write("z/data.json", '{"a": "breakpoint()"}\n')
    repository.write("build/out.py", "breakpoint()\n")
    patch = read_own_patch(Git(repository.path), GitReader().read(repository.path))
    assert sum(len(line.text) + 1 for line in patch.added) <= MAX_BYTES
    assert len(patch.added) <= MAX_LINES
    assert {"made/00.py", "made/01.py"} <= {line.path for line in patch.added}
    assert not {"z/data.json", "build/out.py"} & {line.path for line in patch.added}
    assert {"z/data.json", "build/out.py", "made/19.py"} <= patch.untracked


def test_lines_of_a_patch_that_look_like_headers_are_lines():
    patch = "\x01abc\n\ndiff --git a.txt a.txt\n--- a.txt\n+++ a.txt\n@@ -0,0 +1,2 @@\n+++ b/evil.txt\n+second\n"
    *_, file = read_patch(patch.split("\n"))
    assert (file.commit, file.path) == ("abc", "a.txt")
    assert [(line.line, line.text) for line in file.added] == [(1, "++ b/evil.txt"), (2, "second")]
