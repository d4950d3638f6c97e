"""Commits that nobody else has: secrets, large files, commits on no branch, fixups, stashes and old branches."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from engine.model import ALREADY_REVIEWED, PROBLEM_FOUND, DismissReason, Refusal, Tier
from tests.situations.conftest import Situation

# A secret is in a commit that nobody else has yet, or about to be committed.


KEY = "AK" + "IA" + "Q7W2E9R4T1Y8U3I6"  # put together here so that no scanner takes this file for a leak
SETTINGS = f'REGION = "eu"\nKEY = "{KEY}"\n'


@pytest.mark.long
def test_a_key_in_an_unpushed_commit(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    culprit = monday.commit("Upload to the bucket", {"shop/Zugänge prod.py": SETTINGS}, days_ago=0.1)
    monday.commit("Faster cart", {"cart.py": "def total(prices):\n    return sum(prices) + 0\n"}, days_ago=0.05)

    first = monday.first("secret", Tier.BROKEN)
    assert first.assignment.prompt == "Do not push yet: shop/Zugänge prod.py:2 holds an AWS access key"
    assert first.reasoning == "It came in with “Upload to the bucket”, which no remote has yet."

    done = monday.approve(first)
    assert done.summary.startswith("Do not push: 1 likely secret in shop/Zugänge prod.py:2")
    transcript = monday.transcript(done)
    commands = f"  git rebase -i --autostash --empty=drop {culprit[:10]}~1"
    assert commands in transcript
    assert "  git commit --amend --no-edit -- 'shop/Zugänge prod.py'\n" in transcript
    assert KEY not in transcript + done.summary + repr(first)
    assert done.outcome == PROBLEM_FOUND

    again, *_ = monday.engine.cards.pending()
    assert again.kind == "secret"
    assert again.id != first.id, "it is back at once, and warns until the key is gone"
    assert "You reviewed it at 09:30; the details say how to take it out." in again.reasoning
    assert commands in again.reasoning.splitlines()
    with pytest.raises(Refusal, match="nothing has changed since") as refused:
        monday.engine.cards.approve(again.id)
    assert refused.value.code == ALREADY_REVIEWED
    assert monday.engine.cards.pending()[0] == again, "no run, and no decision"

    monday.write("shop/Zugänge prod.py", "KEY = None\n")
    edited = monday.first("secret")
    assert edited.assignment.prompt == "Do not push yet: the history of shop/Zugänge prod.py holds an AWS access key"
    assert f"  git commit --fixup={culprit[:10]} -- 'shop/Zugänge prod.py'" in monday.transcript(monday.approve(edited))
    monday.commit("No key", {"shop/Zugänge prod.py": "KEY = None\n"}, days_ago=0)
    monday.git("reset", "-q", "--soft", "origin/main")
    monday.commit("Upload without a key", days_ago=0)
    assert "secret" not in monday.kinds()


@pytest.mark.long
def test_a_key_that_a_later_commit_removed_is_still_in_the_history(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.git("switch", "-q", "-c", "upload")  # no upstream
    monday.commit("Upload", {"upload.rb": SETTINGS}, days_ago=0.2)
    monday.commit("No key", {"upload.rb": 'KEY = ENV["KEY"]\n'}, days_ago=0.1)

    first = monday.first("secret", Tier.BROKEN)
    assert first.assignment.prompt == "Do not push yet: the history of upload.rb holds an AWS access key"
    monday.git("push", "-q", "origin", "upload")
    assert "secret" not in monday.kinds()  # too late: nothing is about to be pushed


@pytest.mark.long
def test_a_key_in_a_file_whose_name_reads_like_a_command(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.commit("Upload", {"x; rm -rf ~/conf.py": SETTINGS}, days_ago=0.2)

    first = monday.first("secret", Tier.BROKEN)
    assert first.assignment.prompt == "Secret about to be pushed, with a name that reads like a command"
    [problem] = monday.engine.card_cycle.remarks().values()
    assert problem == "do not push yet: x; rm -rf ~/conf.py:2 holds an AWS access key"
    done = monday.approve(first)
    assert done.summary.startswith("Do not push: 1 likely secret in x; rm -rf ~/conf.py:2")


def test_a_dismissed_secret_is_no_problem_any_more(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.commit("Upload", {"conf.py": SETTINGS}, days_ago=0.2)
    card = monday.first("secret")
    assert len(monday.engine.card_cycle.remarks()) == 1
    monday.engine.cards.dismiss(card.id, reason=DismissReason.NEVER_HERE)
    assert "secret" not in monday.kinds()
    assert monday.engine.card_cycle.remarks() == {}


@pytest.mark.long
def test_a_staged_key_becomes_more_urgent_when_it_is_committed(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.write("config.yml", f"region: eu\nkey: {KEY}\n")
    monday.git("add", "config.yml")

    card = monday.first("secret", Tier.BLOCKS)
    assert card.assignment.prompt == "Do not commit yet: config.yml:2 holds an AWS access key"
    monday.engine.cards.dismiss(card.id)
    assert "secret" not in monday.kinds()

    monday.commit("Configure", days_ago=0)
    monday.first("secret", Tier.BROKEN)  # the dismissal does not cover what got worse


@pytest.mark.long
def test_a_key_staged_for_the_first_commit(monday: Situation) -> None:
    monday.write("config.yml", f"region: eu\nkey: {KEY}\n")
    monday.git("add", "config.yml")
    card = monday.first("secret")
    assert card.assignment.prompt == "Do not commit yet: config.yml:2 holds an AWS access key"
    done = monday.approve(card)
    assert (done.outcome, done.summary) == (PROBLEM_FOUND, "Do not commit: 1 likely secret in config.yml:2")
    assert "Remove the secret from config.yml" in monday.transcript(done)


@pytest.mark.long
def test_a_file_of_keys_in_a_repository_without_a_remote(monday: Situation) -> None:
    monday.commit_shop()
    monday.git("switch", "-q", "-c", "deploy")
    monday.commit("Deploy", {".env": "DATABASE=shop\n"}, days_ago=0.1)
    card = monday.card("secret")
    assert card.tier is Tier.BLOCKS
    assert card.assignment.prompt == "Do not push yet: .env is a file that holds keys"
    assert "git rm -r --cached -- .env" in monday.transcript(monday.approve(card))


# Commits that no branch holds, and those that only seem so.


ROUND = {"cart.py": "def total(prices):\n    return round(sum(prices), 2)\n"}


@pytest.mark.long
def test_commits_on_a_detached_head(monday: Situation) -> None:
    monday.commit_shop()
    monday.checkout("--detach", days_ago=1)
    monday.commit("Try tax", {"tax.py": "RATE = 7\n"}, days_ago=0.5)
    tip = monday.commit("Use tax", {"tax.py": "RATE = 19\n"}, days_ago=0.4)

    first = monday.first("lost_commits", Tier.BROKEN)
    assert first.assignment.prompt == "Make a branch for 2 commits that no branch holds"
    assert first.reasoning == (
        "HEAD is detached: 2 commits up to “Use tax” are on no branch, and the next checkout leaves them behind."
    )
    done = monday.approve(first)
    assert done.summary == f"Made rescued-{tip[:10]} (2 commits); to remove it: `git branch -D rescued-{tip[:10]}`"
    assert monday.git("rev-parse", f"rescued-{tip[:10]}") == tip
    assert monday.git("branch", "--show-current") == "", "nothing is checked out"
    assert "lost_commits" not in monday.kinds()


@pytest.mark.long
def test_commits_that_a_reset_left(monday: Situation) -> None:
    monday.commit_shop()
    tip = monday.commit("Invoices", {"bill.py": "def bill(cart):\n    return cart.total\n"}, days_ago=2)
    monday.git("reset", "-q", "--hard", "HEAD~1", days_ago=1)
    first = monday.first("lost_commits")
    assert first.reasoning == "“Invoices” is on no branch any more, left yesterday 09:30."
    monday.approve(first)
    assert monday.git("branch", "--contains", tip).strip() == f"rescued-{tip[:10]}"


def test_commits_of_a_deleted_branch(monday: Situation) -> None:
    monday.commit_shop()
    monday.checkout("-b", "idee/größe", days_ago=3)
    monday.commit("An idea", {"idea.py": "def idea():\n    return 42\n"}, days_ago=2)
    monday.checkout("main", days_ago=1)
    monday.git("branch", "-q", "-D", "idee/größe")
    monday.first("lost_commits")


def amend(monday: Situation) -> None:
    monday.write("cart.py", ROUND["cart.py"])
    monday.git("commit", "-qa", "--amend", "-m", "Another name", days_ago=0.2)


def rebase(monday: Situation) -> None:
    monday.checkout("-b", "feature", "HEAD~1", days_ago=0.9)
    monday.commit("Feature", {"feature.py": "def feature():\n    return True\n"}, days_ago=0.8)
    monday.git("rebase", "-q", "main", days_ago=0.7)


def squash(monday: Situation) -> None:
    monday.commit("More", {"more.py": "def more():\n    return 'more of it'\n"}, days_ago=0.8)
    monday.git("reset", "-q", "--soft", "HEAD~2", days_ago=0.7)
    monday.git("commit", "-qm", "Both at once", days_ago=0.6)


def squash_merge(monday: Situation) -> None:
    monday.checkout("-b", "feature", days_ago=0.9)
    monday.commit("Part one", {"feature.py": "def feature():\n    return True\n"}, days_ago=0.8)
    monday.commit("Part two", {"other.py": "def other():\n    return None\n"}, days_ago=0.7)
    monday.checkout("main", days_ago=0.6)
    monday.git("merge", "-q", "--squash", "feature", days_ago=0.6)
    monday.git("commit", "-qm", "Feature (#1)", days_ago=0.6)
    monday.git("branch", "-q", "-D", "feature", days_ago=0.5)
    monday.commit("Feature goes on", {"other.py": "def other():\n    return None  # yet\n"}, days_ago=0.4)


def autosquash(monday: Situation) -> None:
    monday.commit("fixup! Invoices", {"bill.py": "def bill(cart):\n    return round(cart.total)\n"}, days_ago=0.8)
    monday.git("-c", "sequence.editor=:", "rebase", "-q", "-i", "--autosquash", "HEAD~2", days_ago=0.7)


def reset_to_redo(monday: Situation) -> None:
    monday.git("reset", "-q", "HEAD~1", days_ago=0.7)


def checkout_from_others(monday: Situation) -> None:
    monday.git("-c", "user.name=X", "-c", "user.email=x@example.org", "commit", "-q", "--allow-empty", "-m", "Theirs")
    theirs = monday.git("rev-parse", "HEAD")
    monday.git("reset", "-q", "--hard", "HEAD~1")
    (monday.path / ".git/logs/HEAD").unlink()
    (monday.path / ".git/logs/refs/heads/main").unlink()
    monday.checkout("--detach", theirs)


@pytest.mark.long
@pytest.mark.parametrize(
    "rewrite",
    [amend, rebase, squash, squash_merge, autosquash, reset_to_redo, checkout_from_others],
)
def test_rewritten_commits_are_not_lost(monday: Situation, rewrite: Callable[[Situation], None]) -> None:
    monday.commit_shop()
    monday.commit("Invoices", {"bill.py": "def bill(cart):\n    return cart.total\n"}, days_ago=1)
    rewrite(monday)
    assert "lost_commits" not in monday.kinds()


@pytest.mark.long
def test_fixup_commits_are_squashed_in_rehearsal(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.commit("Round the total", ROUND, days_ago=0.9)
    monday.commit("Notes", {"notes.txt": "a\n"}, days_ago=0.8)
    monday.commit("fixup! Round the total", {"cart.py": ROUND["cart.py"].replace("2", "3")}, days_ago=0.7)
    monday.commit("squash! Notes", {"notes.txt": "a\nb\n"}, days_ago=0.6)
    head = monday.git("rev-parse", "HEAD")

    card = monday.card("autosquash")
    assert card.tier is Tier.CHECK
    assert card.assignment.prompt == "Rehearse squashing 2 fixup commits into “Notes” and “Round the total”"
    done = monday.approve(card)
    onto = monday.git("rev-parse", "--short=10", "origin/main")
    assert done.summary.startswith("The autosquash is clean: 4 commits would become 2, with the same files at the end")
    assert done.summary.endswith(f"to do it: `git -c sequence.editor=: rebase -i --autosquash {onto}`")
    assert monday.git("rev-parse", "HEAD") == head

    monday.git("-c", "sequence.editor=:", "-c", "core.editor=:", "rebase", "-q", "-i", "--autosquash", onto)
    assert not {"autosquash", "lost_commits"} & {*monday.kinds()}


@pytest.mark.long
def test_a_fixup_that_conflicts_on_the_way(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Table", {"table.txt": "one\n"}, days_ago=3)
    monday.commit("Other", {"table.txt": "two\n"}, days_ago=2)
    monday.commit("fixup! Table", {"table.txt": "three\n"}, days_ago=1)
    card = monday.card("autosquash")
    done = monday.approve(card)
    assert done.summary.startswith("The autosquash stops at ")
    assert done.summary.endswith(" in table.txt")


def test_fixups_that_are_pushed_are_left_alone(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Round the total", ROUND, days_ago=0.9)
    monday.commit("fixup! Round the total", {"notes.txt": "a\n"}, days_ago=0.7)
    monday.add_remote()
    assert "autosquash" not in monday.kinds()


@pytest.mark.long
def test_stashes_of_three_weeks_ago(monday: Situation) -> None:
    monday.commit_shop()
    monday.write("cart.py", ROUND["cart.py"])
    monday.git("stash", "push", "-q", "-m", "rounding", days_ago=22)
    monday.write("größe neu.txt", "a\n")
    monday.git("stash", "push", "-q", "-u", days_ago=21)
    monday.commit("Round the total", ROUND, days_ago=20)
    assert monday.git("stash", "list").count("\n") == 1

    card = monday.card("old_stash")
    assert card.tier is Tier.UPKEEP
    assert card.assignment.prompt == "Look at 2 old stashes: what is in them, and do they still apply?"
    assert card.reasoning == (
        "“rounding” made on main with cart.py has been waiting since 14 December 2025, and 1 other older than two "
        "weeks."
    )
    done = monday.approve(card)
    assert "stash@{1} (rounding): already in HEAD" in done.summary
    assert "stash@{0} (" in done.summary
    assert ": still applies" in done.summary
    assert "`git stash drop stash@{1}`" in monday.transcript(done)
    assert monday.git("stash", "list").count("\n") == 1, "the stashes stay"


def test_a_stash_of_last_week_is_no_card(monday: Situation) -> None:
    monday.commit_shop()
    monday.write("cart.py", ROUND["cart.py"])
    monday.git("stash", days_ago=6)
    assert "old_stash" not in monday.kinds()


@pytest.mark.long
def test_merged_and_stale_branches_are_listed_but_not_checked_out_ones(monday: Situation) -> None:
    monday.commit_shop(days_ago=90)
    for name in ("done", "elsewhere"):
        monday.git("branch", "-q", name)
    monday.git("worktree", "add", "-q", str(monday.path.parent / "elsewhere"), "elsewhere")
    monday.checkout("-b", "old", days_ago=60)
    monday.commit("Old idea", {"old.py": "x = 1\n"}, days_ago=60)
    monday.checkout("main")
    monday.commit("Now", {"now.py": "x = 1\n"}, days_ago=1)
    monday.run_tests()

    card = monday.card("report_branches")
    assert card.assignment.prompt == "List 1 merged branch and 1 stale branch, with the commands that delete them"
    assert card.reasoning.startswith("done and old: ")
    done = monday.approve(card)
    transcript = monday.transcript(done)
    assert "git branch -d -- done" in transcript
    assert "git branch -d -- elsewhere" not in transcript
    shutil.rmtree(monday.path.parent / "elsewhere")


@pytest.mark.long
def test_a_large_file_in_an_unpushed_commit(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.commit("Numbers", {"data/dump.bin": "0" * 60_000_000}, days_ago=0.1)

    first = monday.first("large_file", Tier.BROKEN)
    assert first.assignment.prompt == "Do not push yet: data/dump.bin is 60 MB"
    done = monday.approve(first)
    assert done.summary == "Do not push: data/dump.bin is a large file, 60 MB (in 1 unpushed commit)"
    transcript = monday.transcript(done)
    assert "git rm -r --cached -- data/dump.bin" in transcript
    assert "git commit --amend" in transcript


@pytest.mark.long
def test_a_dump_that_was_removed_again_and_one_that_is_staged(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.git("switch", "-q", "-c", "numbers")
    culprit = monday.commit("Numbers", {"db backup.sql": "insert\n" * 300_000}, days_ago=0.3)
    (monday.path / "db backup.sql").unlink()
    monday.commit("Without the numbers", days_ago=0.2)
    first = monday.first("large_file", Tier.BROKEN)
    assert first.assignment.prompt == "Do not push yet: db backup.sql in the history is 2.1 MB (database dump)"
    assert f"in place of pick before {culprit[:7]};" in monday.transcript(monday.approve(first))

    monday.git("reset", "-q", "--hard", "main")
    monday.write("all.zip", "0" * 3_000_000)
    assert "large_file" not in monday.kinds()  # git does not know it
    monday.git("add", "all.zip")
    card = monday.card("large_file")
    assert card.tier is Tier.BLOCKS
    assert card.assignment.prompt == "Do not commit yet: all.zip is 3.0 MB (archive)"
