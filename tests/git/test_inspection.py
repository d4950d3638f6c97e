"""A check of the inspection that fails costs no other check, and a merge is tried without a trace (SPEC 2.1)."""

from __future__ import annotations

from engine.git.operations import MergeTrial, try_merge
from engine.git.reader import GitReader
from tests.conftest import MONDAY_MORNING as NOW
from tests.conftest import Repository


def test_a_check_that_fails_is_named_and_tried_again_after_a_change(repository: Repository) -> None:
    """That it costs no other check is in `tests/situations/test_cycle.py`."""
    repository.commit("begin", {"a.py": "1\n"})
    repository.write("a.py", "breakpoint()\n")
    blob = repository.git("rev-parse", "HEAD:a.py")
    object_file = repository.path / ".git/objects" / blob[:2] / blob[2:]
    content = object_file.read_bytes()
    object_file.unlink()
    reader = GitReader()
    state = reader.read(repository.path)
    unknown = reader.inspect(repository.path, state, NOW, NOW).unknown
    assert "own" in unknown
    object_file.write_bytes(content)
    assert reader.inspect(repository.path, state, NOW, NOW).unknown == unknown, "it is not tried again at once"
    repository.write("a.py", "x = 1\nbreakpoint()\n")
    assert reader.inspect(repository.path, reader.read(repository.path), NOW, NOW).unknown == {}


def test_a_merge_is_tried_without_a_trace(repository: Repository) -> None:
    repository.commit("begin", {"a.txt": "1\n"})
    for name in ("left", "right"):
        repository.git("checkout", "-q", "-b", name, "main")
        repository.commit(name, {"a.txt": f"{name}\n", f"{name}.txt": "x\n"})
    repository.git("checkout", "-q", "--orphan", "apart")
    repository.commit("another beginning", {"z.txt": "1\n"})
    before = {*(repository.path / ".git").rglob("*")}
    assert try_merge(repository.path, "left", "right") == MergeTrial(("a.txt",), adds=True)
    assert try_merge(repository.path, "left", "main") == MergeTrial((), adds=False)
    assert try_merge(repository.path, "left", "apart").files is None, "they have no common history"
    assert {*(repository.path / ".git").rglob("*")} == before
