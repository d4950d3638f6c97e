"""Merges are tried without a trace."""

from __future__ import annotations

from engine.git.merges import MergeTrial, try_merge
from tests.conftest import Repository


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
