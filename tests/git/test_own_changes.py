"""Which lines of debugging can go, and what a patch of your own work holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from engine.git import Git
from engine.git.leftovers import removable_lines, without_lines
from engine.git.own_changes import own_changes
from engine.git.patch import MAX_BYTES, MAX_LINES, own_patch, read_patch
from engine.git.reader import GitReader
from engine.git.secrets import secret_kind
from tests.conftest import Repository
from tests.git.test_unpushed import TOKEN

# Which lines look like secrets.


@pytest.mark.parametrize(
    ("path", "line", "kind"),
    [
        ("deploy.yml", "  password: k9Zr2-Lk9Xw4Tn7B", "value that looks like a key"),
        ("k8s.yml", "  secretName: shop-tls-2024-prod-1", ""),
        ("ci.yml", "  token: ${{ secrets.DEPLOY_TOKEN_1 }}", ""),
        (".env.production", "aws_secret_access_key=" + "q8Zr2Lk9Xw4Tn7Bv+/" * 2 + "a1b2", "AWS secret key"),
        ("docs/config.rst", "SECRET_KEY = '192b9bdd22ab9ed4d12e236c78afcb9a'", ""),
        ("docs/config.rst", f"TOKEN = '{TOKEN}'", "GitHub token"),
        ("t/unit/__init__.py", f"TOKEN = '{TOKEN}'", ""),
        ("compose.yml", "url: postgres://shop:s3cr3tpw@db/shop", ""),
    ],
)
def test_secrets_and_what_only_looks_like_one(path: str, line: str, kind: str) -> None:
    assert secret_kind(path, line) == kind


LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)

PYTHON = """\
import pdb
import os; breakpoint()
def a():
    breakpoint()
    if os.sep: pdb.set_trace()
    x = breakpoint(
    )
    import pdb; pdb.set_trace()
    breakpoint()  # why
"""


def test_python_loses_only_whole_statements() -> None:
    assert removable_lines("a.py", PYTHON, range(1, 10)) == [1, 4, 8]
    after = without_lines("a.py", "def a():\n    breakpoint()\n\ndef b():\n    pass\n", [2])
    assert after == "def a():\n    pass\n\ndef b():\n    pass\n"
    assert removable_lines("a.py", "def a(:\n    breakpoint()\n", [2]) == []


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("a.js", "let a = 1;\nconsole.log(a);\ndebugger\n", [2, 3]),
        ("a.js", "if (a)\n  console.log(a);\nb();\n", []),
        ("a.js", "const f = () =>\n  console.log(1);\n", []),
        ("a.js", "a();\nconsole.log(`x\n`);\n", []),
        ("a.ts", "else\n  console.log(1)\n", []),
        ("a.js", "console.log(a)\n  .then(b);\n", []),
        ("a.rs", "let x = 1;\ndbg!(x);\nlet y = dbg!(x);\n", [2]),
        ("a.rb", "def a\n  binding.pry\n  b\nend\n", [2]),
    ],
)
def test_other_languages_are_judged_by_their_lines(path: str, text: str, expected: list[int]) -> None:
    assert removable_lines(path, text, range(1, 5)) == expected


def look(repository: Repository) -> tuple[list[str], list[tuple[str, int, str, str]]]:
    state = GitReader().read(repository.path)
    changes = own_changes(Git(repository.path), state, LONG_AGO)
    return [leftover.place for leftover in changes.leftovers], [
        (mention.path, mention.line, mention.old, mention.new) for mention in changes.mentions
    ]


def test_the_same_work_has_the_same_mark_committed_or_not(repository: Repository) -> None:
    repository.commit("one", {"a.py": "a = 1\n"})
    repository.git("checkout", "-q", "-b", "work")
    repository.write("a.py", "a = 2\n")
    git = Git(repository.path)
    before = own_patch(git, GitReader().read(repository.path)).mark
    repository.commit("two")
    assert own_patch(git, GitReader().read(repository.path)).mark == before


def test_documents_that_name_what_is_gone(repository: Repository) -> None:
    repository.commit(
        "one",
        {
            "src/cart.py": "def old_total(prices):\n    return sum(prices)\n\ndef total():\n    pass\n",
            "src/cli.py": 'add("--old-flag", help="x")\n',
            "conf.toml": "old_key = 1\nkept = 2\n",
            "README.md": "Call `old_total(x)`.\nSee src/cart.py.\nSet `old_key`.\nTotal of it.\nPass --old-flag now.\n",
            "CHANGELOG.md": "old_total is new\n",
        },
    )
    repository.git("mv", "src/cart.py", "src/basket.py")
    repository.write("src/basket.py", "def new_total(prices):\n    return sum(prices)\n\ndef total():\n    pass\n")
    repository.write("src/cli.py", 'add("--new-flag", help="x")\n')
    repository.write("conf.toml", "kept = 2\n")
    repository.git("add", "-A")
    assert look(repository)[1] == [
        ("README.md", 1, "old_total", "new_total"),
        ("README.md", 2, "src/cart.py", "src/basket.py"),
        ("README.md", 3, "old_key", ""),
        ("README.md", 5, "--old-flag", "--new-flag"),
    ]
    repository.write("other.py", "old_total = 1\n")
    assert ("README.md", 1, "old_total", "new_total") not in look(repository)[1]


def test_untracked_files_are_read_within_one_budget(repository: Repository) -> None:
    """Three hundred large files that nobody ignores must cost no more than a few."""
    repository.commit("one", {"a.py": "a = 1\n"})
    text = "breakpoint()\n" + "x = 'words of forty characters, more or less'\n" * 9_000
    for number in range(20):
        repository.write(f"made/{number:02}.py", text)
    repository.write("z/data.json", '{"a": "breakpoint()"}\n')
    repository.write("build/out.py", "breakpoint()\n")
    patch = own_patch(Git(repository.path), GitReader().read(repository.path))
    assert sum(len(line.text) + 1 for line in patch.added) <= MAX_BYTES
    assert len(patch.added) <= MAX_LINES
    assert {"made/00.py", "made/01.py"} <= {line.path for line in patch.added}
    assert not {"z/data.json", "build/out.py"} & {line.path for line in patch.added}
    assert {"z/data.json", "build/out.py", "made/19.py"} <= patch.untracked
    repository.commit("all of it")
    repository.write("a.py", "b = 2\n" * (MAX_LINES + 10))
    assert len(own_patch(Git(repository.path), GitReader().read(repository.path)).added) <= MAX_LINES


LEFT_IN = {
    "a.py": ('x = 1\nbreakpoint()\n# breakpoint()\ntext = """\nbreakpoint()\n"""\nprint(x)\n', ["a.py:2"]),
    "b.js": ("debugger\n", ["b.js:1"]),
    "conflict.txt": ("<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n", ["conflict.txt:1"]),
    "half.txt": ("<<<<<<< ours\na\n", []),
    "manual.md": ("```\n<<<<<<< ours\n=======\n>>>>>>> theirs\n```\nbreakpoint()\n# TODO\n", []),
    "src/lib.rs": ("dbg!(x);\n", ["src/lib.rs:1"]),
    "tests/lib.rs": ("dbg!(x);\n", []),
    "vendor/b.js": ("debugger\n", []),
    "later.py": ("# XXX\n", []),
    "fresh.py": ("# TODO today\n", ["fresh.py:1"]),
}


def test_what_was_left_in_and_what_only_looks_like_it(repository: Repository) -> None:
    day = timedelta(days=1)
    repository.commit("one", {"z.py": "z = 1\n"}, at=(NOW - 9 * day).isoformat())
    repository.git("switch", "-q", "-c", "work")
    repository.commit("older", {"older.py": "# TODO last week\n"}, at=(NOW - 7 * day).isoformat())
    repository.commit("all", {path: text for path, (text, _) in LEFT_IN.items()}, at=NOW.isoformat())
    state = GitReader().read(repository.path)
    expected = [place for _, places in LEFT_IN.values() for place in places]
    expected.sort(key=lambda place: (not place.startswith("conflict"), place.startswith("fresh"), place))
    for since, older in ((NOW - day, []), (NOW - 8 * day, ["older.py:1"])):
        leftovers = own_changes(Git(repository.path), state, since).leftovers
        assert [leftover.place for leftover in leftovers] == expected + older


def test_lines_of_a_patch_that_look_like_headers_are_lines() -> None:
    patch = "\x01abc\n\ndiff --git a.txt a.txt\n--- a.txt\n+++ a.txt\n@@ -0,0 +1,2 @@\n+++ b/evil.txt\n+second\n"
    *_, file = read_patch(patch.split("\n"))
    assert (file.commit, file.path) == ("abc", "a.txt")
    assert [(line.line, line.text) for line in file.added] == [(1, "++ b/evil.txt"), (2, "second")]
