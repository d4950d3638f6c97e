"""Merges tried beforehand, reflogs, fixup commits and stashes, on real repositories."""

from __future__ import annotations

import subprocess
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from engine.git import Git
from engine.git.leftovers import QuarantinedTest, read_quarantined_tests
from engine.git.lost_commits import is_reachable, read_lost_commits, read_reflog
from engine.git.merges import MergeTrial, try_merge
from engine.git.operations import conflicted_files, operation_stamp, read_operation
from engine.git.reader import GitReader
from engine.git.unpushed import read_fixups
from tests.conftest import Repository

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)


def ago(days: float) -> str:
    return (NOW - timedelta(days=days)).isoformat()


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


def test_the_base_is_found_behind_three_hundred_branches(repository: Repository) -> None:
    repository.commit("begin", {"a.txt": "1\n"}, at=ago(9))
    repository.git("checkout", "-q", "-b", "work")
    repository.commit("work", at=ago(1))
    orders = "".join(f"create refs/heads/x{number} HEAD\n" for number in range(301))
    subprocess.run(["git", "update-ref", "--stdin"], cwd=repository.path, input=orders, text=True, check=True)
    state = GitReader().read(repository.path)
    assert (state.base, state.base_name, state.ahead_of_base) == ("main", "main", 1)


def test_a_reflog_is_read_whatever_it_holds(repository: Repository) -> None:
    first = repository.commit("begin", at=ago(2))
    second = repository.commit("second: ünï", at=ago(1))
    log = repository.path / ".git/logs/HEAD"
    log.write_bytes(log.read_bytes() + b"garbage\n\xff\xfe\n" + b"0" * 40 + b" short\n")
    steps = read_reflog(Git(repository.path))
    assert [(entry.old, entry.new) for entry in steps] == [("0" * 40, first), (first, second)]
    assert steps[1].at == NOW - timedelta(days=1)
    assert steps[1].action == "commit: second: ünï"


def test_lost_commits_of_two_lines(repository: Repository) -> None:
    repository.commit("begin", {"a.txt": "1\n"}, at=ago(9))
    tips = []
    for name in ("left", "right"):
        repository.git("checkout", "-q", "--detach", "main", at=ago(5))
        repository.commit(f"{name} one", {f"{name}.txt": f"{name} has words\n"}, at=ago(4))
        tips.append(repository.commit(f"{name} two", {f"{name}.txt": f"{name} has others\n"}, at=ago(3)))
    repository.git("checkout", "-q", "main", at=ago(2))
    git, state = Git(repository.path), GitReader().read(repository.path)
    result = read_lost_commits(git, state, NOW)
    assert {line.tip for line in result} == {*tips}
    assert {line.number for line in result} == {2}
    assert not is_reachable(git, tips[0])
    repository.git("tag", "kept", tips[0])
    assert is_reachable(git, tips[0])
    assert [line.tip for line in read_lost_commits(git, state, NOW)] == [tips[1]]
    assert read_lost_commits(git, state, NOW + timedelta(days=31)) == ()


def test_fixups_up_to_the_first_commit(repository: Repository) -> None:
    repository.commit("begin: words", {"a.txt": "1\n"})
    repository.commit("other", {"b.txt": "1\n"})
    repository.commit("fixup! begin: words", {"a.txt": "2\n"})
    repository.commit("fixup! fixup! begin: words", {"a.txt": "3\n"})
    repository.commit("fixup! nothing like it", {"a.txt": "4\n"})
    result = read_fixups(Git(repository.path), GitReader().read(repository.path))
    assert result is not None
    assert (len(result.subjects), result.targets, result.onto) == (2, ("begin: words",), "")


def test_a_clone_without_its_history_has_no_habits(repository: Repository, tmp_path: Path) -> None:
    """What is only there to offer more must not take away everything."""
    for number in range(3):
        repository.commit(f"commit {number}", {"a.py": f"{number}\n", "b.py": f"{number}\n"})
    repository.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    repository.git("clone", "-q", "--filter=tree:0", f"file://{repository.path}", str(clone))
    (clone / "a.py").write_text("new\n")
    state = GitReader().read(clone)
    assert ([file.path for file in state.files], state.partner, state.release) == (["a.py"], None, None)
    assert len(state.recent) == 3


def test_a_look_that_fails_is_named_and_costs_no_other(repository: Repository) -> None:
    repository.commit("begin", {"a.py": "1\n"})
    repository.write("b.txt", "1\n")
    repository.git("stash", "push", "-q", "-u")
    repository.write("a.py", "breakpoint()\n")
    blob = repository.git("rev-parse", "HEAD:a.py")
    lost = repository.path / ".git/objects" / blob[:2] / blob[2:]
    content = lost.read_bytes()
    lost.unlink()
    reader = GitReader()
    state = reader.read(repository.path)
    inspection = reader.inspect(repository.path, state, NOW, NOW)
    assert "own" in inspection.unknown
    assert (inspection.own.leftovers, len(inspection.stashes)) == ((), 1)
    lost.write_bytes(content)
    assert reader.inspect(repository.path, state, NOW, NOW).unknown == inspection.unknown, (
        "it is not tried again at once"
    )
    repository.write("a.py", "x = 1\nbreakpoint()\n")
    inspection = reader.inspect(repository.path, reader.read(repository.path), NOW, NOW)
    assert inspection.unknown == {}
    assert [leftover.place for leftover in inspection.own.leftovers] == ["a.py:2"]


def test_tests_in_quarantine(repository: Repository) -> None:
    skipped = 'import pytest\n@pytest.mark.skip(reason="quarantined until {day}")\n'
    names = [f"tests/test_{number:02}.py" for number in range(60)]
    files = {name: f"{skipped.format(day='2026-01-19')}def test_a():\n    pass\n" for name in names}
    files["ü b/test_c.py"] = (
        "class TestCart:\n    def test_0(self):\n        pass\n\n"
        '    @pytest.mark.skip(reason="quarantined until 2026-02-01")\n    async def test_1(self):\n        pass\n'
    )
    files["tests/test_other.py"] = "def test_b():\n    pass\n"
    head = repository.commit("tests", files)
    repository.commit("none", dict.fromkeys(files, "def test_a():\n    pass\n"))
    git = Git(repository.path)
    result = read_quarantined_tests(git, head)
    assert result[0] == QuarantinedTest("tests/test_00.py::test_a", date(2026, 1, 19))
    assert len(result) == 50, "there is an end to it"
    assert read_quarantined_tests(git, "HEAD") == ()
    repository.commit("one", {"ü b/test_c.py": files["ü b/test_c.py"]})
    assert read_quarantined_tests(git, "HEAD") == (
        QuarantinedTest("ü b/test_c.py::TestCart::test_1", date(2026, 2, 1)),
    )


# What is unfinished in a repository, as git's own files say it.


def attempt(repository: Repository, *arguments: str) -> None:
    done = subprocess.run(["git", *arguments], cwd=repository.path, capture_output=True, text=True, check=False)
    assert done.returncode, done.stdout


@pytest.fixture
def apart(repository: Repository) -> Repository:
    """`main` and `side` change the same line of two files, one of them with a name that begins like magic."""
    repository.commit("begin", {":a.txt": "1\n", "b c.txt": "1\n"})
    repository.git("checkout", "-q", "-b", "side")
    repository.commit("side", {":a.txt": "2\n", "b c.txt": "2\n"})
    repository.git("checkout", "-q", "main")
    repository.commit("main", {":a.txt": "3\n", "b c.txt": "3\n"})
    return repository


def test_a_merge_and_what_is_resolved_of_it(apart: Repository) -> None:
    attempt(apart, "merge", "side")
    git = Git(apart.path)
    stamp = operation_stamp(git.repository.git_dir)
    op = read_operation(git)
    assert op is not None
    assert (op.name, op.ours.name, op.unmerged, op.resolved) == (
        "merge",
        "main",
        (":a.txt", "b c.txt"),
        (),
    )
    assert op.theirs is not None
    assert (op.theirs.name, op.theirs.subject) == ("side", "side")
    assert {*conflicted_files(git)[":a.txt"]} == {1, 2, 3}

    apart.write("b c.txt", "23\n")
    apart.git("add", "b c.txt")
    assert operation_stamp(git.repository.git_dir) != stamp
    op = read_operation(git)
    assert op is not None
    assert (op.unmerged, op.resolved, op.files) == (
        (":a.txt",),
        ("b c.txt",),
        (":a.txt", "b c.txt"),
    )
    assert (op.continue_command, op.abort_command) == ("git merge --continue", "git merge --abort")


def test_what_a_rebase_has_left(apart: Repository) -> None:
    apart.git("checkout", "-q", "side")
    rest = [apart.commit(f"more {number}", {f"{number}.txt": "x"}) for number in range(2)]
    attempt(apart, "rebase", "main")
    op = read_operation(Git(apart.path))
    assert op is not None
    assert (op.name, op.rebased, op.ours.name) == ("rebase", "side", "main")
    assert op.theirs is not None
    assert op.theirs.subject == "side"
    assert [sha[:7] for sha in op.remaining] == [sha[:7] for sha in rest]


def test_several_picks_one_of_them_committed_by_hand(apart: Repository) -> None:
    apart.git("checkout", "-q", "side")
    last = apart.commit("more", {"more.txt": "x"})
    apart.git("checkout", "-q", "main")
    attempt(apart, "cherry-pick", "side~1", "side")
    apart.git("checkout", "--theirs", "--", "./:a.txt", "b c.txt")
    apart.git("commit", "-qam", "by hand")
    op = read_operation(Git(apart.path))
    assert op is not None
    assert (op.name, op.unmerged) == ("cherry-pick", ())
    assert last.startswith(op.remaining[-1])


def test_a_bisect_with_words_of_its_own(repository: Repository) -> None:
    first, *_, last = [repository.commit(str(number)) for number in range(6)]
    repository.git("bisect", "start", "--term-new", "slow", "--term-old", "fast")
    op = read_operation(Git(repository.path))
    assert op is not None
    assert (op.bad, op.good, op.terms) == ("", (), ("slow", "fast"))
    repository.git("bisect", "slow", last)
    repository.git("bisect", "fast", first)
    op = read_operation(Git(repository.path))
    assert op is not None
    assert (op.bad, op.good, op.suspects, op.continue_command) == (
        last,
        (first,),
        5,
        "git bisect fast",
    )


def test_a_worktree_has_an_operation_of_its_own(apart: Repository) -> None:
    other = apart.path.parent / "other"
    apart.git("worktree", "add", "-q", "-b", "third", str(other), "main")
    done = subprocess.run(["git", "merge", "side"], cwd=other, capture_output=True, check=False)
    assert done.returncode
    assert read_operation(Git(apart.path)) is None
    op = read_operation(Git(other))
    assert op is not None
    assert (op.name, op.ours.name) == ("merge", "third")
