"""The past of a repository: commits and tags; a merge that is tried; the project of a clone (SPEC 2.1)."""

from engine.git import Git
from engine.git.history import MergeTrial, ProjectIds, read_changes, try_merge
from tests.support.repository import Repository

ISO_DAY = "2026-01-0{}T10:00:00+00:00"


def test_commits_have_files_and_tags_and_a_merge_has_no_files_of_its_own(repository: Repository):
    first = repository.commit("begin", {"a.py": "1\n", "dir/b c.py": "1\n"}, at=ISO_DAY.format(1))
    repository.git("tag", "v1.0")
    repository.git("checkout", "-q", "-b", "side")
    repository.git("rm", "-q", "a.py")
    repository.commit("side", {"ü.py": "1\n"}, at=ISO_DAY.format(2))
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "side", at=ISO_DAY.format(3))
    history = read_changes(Git(repository.path))
    assert [(change.subject, change.parent_count, change.files, change.deleted) for change in history] == [
        ("begin", 0, ("a.py", "dir/b c.py"), ()),
        ("side", 1, ("a.py", "ü.py"), ("a.py",)),
        ("merge", 2, (), ()),
    ]
    assert (history[0].id, history[0].committed, history[0].tags) == (first, 1767261600, ("v1.0",))


def test_hostile_subjects_and_names_do_not_shift_fields(repository: Repository):
    repository.git("commit", "-q", "--allow-empty", "--allow-empty-message", "-m", "")
    (repository.path / "\x01odd\nname").write_text("1\n")
    repository.commit("\x01 D 100 ")
    repository.commit("plain", {"M": "1\n"})
    history = read_changes(Git(repository.path))
    assert [(change.parent_count, change.files) for change in history] == [
        (0, ()),
        (1, ("\x01odd\nname",)),
        (1, ("M",)),
    ]


def test_a_project_is_its_first_commit_and_a_shallow_clone_has_none(repository: Repository):
    first = repository.commit("one", {"a.py": "1\n"})
    repository.commit("two", {"a.py": "2\n"})
    shallow = repository.path.parent / "shallow"
    repository.git("clone", "-q", "--depth=1", repository.path.as_uri(), str(shallow))
    project_ids = ProjectIds()
    assert [project_ids.of(str(path)) for path in (repository.path, shallow, shallow / "missing")] == [first, "", ""]


def test_a_merge_is_tried_without_a_trace(repository: Repository):
    repository.commit("begin", {"a.txt": "1\n"})
    for name in ("left", "right"):
        repository.git("checkout", "-q", "-b", name, "main")
        repository.commit(name, {"a.txt": f"{name}\n", f"{name}.txt": "x\n"})
    repository.git("checkout", "-q", "--orphan", "apart")
    repository.commit("another beginning", {"z.txt": "1\n"})
    before = {*(repository.path / ".git").rglob("*")}
    assert try_merge(repository.path, "left", "right") == MergeTrial(("a.txt",), changes_anything=True)
    assert try_merge(repository.path, "left", "main") == MergeTrial((), changes_anything=False)
    assert try_merge(repository.path, "left", "apart").files is None, "they have no common history"
    assert {*(repository.path / ".git").rglob("*")} == before
