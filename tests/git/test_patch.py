"""Your own work as one patch within a budget, and patches that look odd (SPEC 2.1)."""

from engine.git import Git
from engine.git.patch import MAX_BYTES, MAX_LINES, read_own_patch, read_patch
from engine.git.reader import GitReader
from tests.support.repository import Repository


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
