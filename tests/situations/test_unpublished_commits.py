"""The cards about what nobody else has: secrets, large files, commits on no branch, fixups, stashes, old branches."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from engine.model import ALREADY_REVIEWED, PROBLEM_FOUND, DismissReason, Refusal, Tier
from tests.situations.conftest import Situation

KEY = "AK" + "IA" + "Q7W2E9R4T1Y8U3I6"  # put together here so that no scanner takes this file for a leak
SETTINGS = f'REGION = "eu"\nKEY = "{KEY}"\n'
ROUND = {"cart.py": "def total(prices):\n    return round(sum(prices), 2)\n"}


# A secret is in a commit that nobody else has yet, or about to be committed.


@pytest.mark.long
def test_a_key_in_an_unpushed_commit(pushed: Situation) -> None:
    culprit = pushed.commit("Upload to the bucket", {"shop/Zugänge prod.py": SETTINGS}, days_ago=0.1)
    pushed.commit("Faster cart", {"cart.py": "def total(prices):\n    return sum(prices) + 0\n"}, days_ago=0.05)

    card = pushed.predict_top_card("secret", Tier.AT_RISK)
    assert card.assignment.prompt == "Do not push yet: shop/Zugänge prod.py:2 holds an AWS access key"
    assert card.reasoning == (
        "It came in with “Upload to the bucket”, which no remote has yet. "
        "Approving this lists the commands that take it out, and changes nothing."
    )

    session = pushed.approve(card)
    assert session.summary.startswith("Do not push: shop/Zugänge prod.py:2 holds an AWS access key")
    transcript = pushed.read_transcript(session)
    commands = f"  git commit -m 'fixup! {culprit[:10]}' -- 'shop/Zugänge prod.py'"
    assert commands in transcript
    assert KEY not in transcript + session.summary + repr(card)
    assert session.outcome == PROBLEM_FOUND

    next_card, *_ = pushed.engine.cards.pending()
    assert next_card.kind == "secret"
    assert next_card.id != card.id, "it is back at once, and warns until the key is gone"
    assert "You reviewed it at 09:30; the details say how to take it out." in next_card.reasoning
    assert commands in next_card.reasoning.splitlines()
    with pytest.raises(Refusal, match="nothing has changed since") as refused:
        pushed.engine.cards.approve(next_card.id)
    assert refused.value.code == ALREADY_REVIEWED
    assert pushed.engine.cards.pending()[0] == next_card, "no run, and no decision"

    pushed.write("shop/Zugänge prod.py", "KEY = None\n")
    edited = pushed.predict_top_card("secret")
    assert edited.assignment.prompt == "Do not push yet: the history of shop/Zugänge prod.py holds an AWS access key"
    assert commands in pushed.read_transcript(pushed.approve(edited))
    pushed.commit("No key", {"shop/Zugänge prod.py": "KEY = None\n"}, days_ago=0)
    pushed.git("reset", "-q", "--soft", "origin/main")
    pushed.commit("Upload without a key", days_ago=0)
    assert "secret" not in pushed.predict_kinds()


@pytest.mark.long
@pytest.mark.parametrize("is_at_same_line", [False, True])
def test_another_key_in_a_reviewed_file_can_be_reviewed(shop: Situation, is_at_same_line: bool) -> None:
    shop.write("conf.py", SETTINGS)
    shop.git("add", "conf.py")
    shop.approve(shop.predict_top_card("secret"))
    card = shop.predict_top_card("secret")
    with pytest.raises(Refusal, match="nothing has changed since"):
        shop.engine.cards.approve(card.id)

    shop.advance(minutes=1)  # git takes a file with the same size and time for unchanged
    other = SETTINGS.replace("Q7W2", "Z9X8")
    shop.write("conf.py", other if is_at_same_line else SETTINGS + other)
    shop.git("add", "conf.py")
    session = shop.approve(shop.predict_top_card("secret"))
    assert session.facts["findings"][-1]["line"] == (2 if is_at_same_line else 4)


@pytest.mark.long
def test_a_key_that_a_later_commit_removed_is_still_in_the_history(pushed: Situation) -> None:
    pushed.git("switch", "-q", "-c", "upload")  # no upstream
    pushed.commit("Upload", {"upload.rb": SETTINGS}, days_ago=0.2)
    pushed.commit("No key", {"upload.rb": 'KEY = ENV["KEY"]\n'}, days_ago=0.1)

    card = pushed.predict_top_card("secret", Tier.AT_RISK)
    assert card.assignment.prompt == "Do not push yet: the history of upload.rb holds an AWS access key"
    pushed.git("push", "-q", "origin", "upload")
    assert "secret" not in pushed.predict_kinds()  # too late: nothing is about to be pushed


@pytest.mark.long
def test_a_key_in_a_file_whose_name_reads_like_a_command(pushed: Situation) -> None:
    pushed.commit("Upload", {"x; rm -rf ~/conf.py": SETTINGS}, days_ago=0.2)

    card = pushed.predict_top_card("secret", Tier.AT_RISK)
    assert card.assignment.prompt == "Secret about to be pushed, with a name that reads like a command"
    [problem] = pushed.engine.card_cycle.remarks().values()
    assert problem == "do not push yet: x; rm -rf ~/conf.py:2 holds an AWS access key"
    session = pushed.approve(card)
    assert session.summary.startswith("Do not push: x; rm -rf ~/conf.py:2 holds an AWS access key")


def test_a_dismissed_secret_is_no_problem_any_more(pushed: Situation) -> None:
    pushed.commit("Upload", {"conf.py": SETTINGS}, days_ago=0.2)
    card = pushed.predict_top_card("secret")
    assert len(pushed.engine.card_cycle.remarks()) == 1
    pushed.engine.cards.dismiss(card.id, reason=DismissReason.NEVER_HERE)
    assert "secret" not in pushed.predict_kinds()
    assert pushed.engine.card_cycle.remarks() == {}


@pytest.mark.long
def test_a_staged_key_becomes_more_urgent_when_it_is_committed(pushed: Situation) -> None:
    pushed.write("config.yml", f"region: eu\nkey: {KEY}\n")
    pushed.git("add", "config.yml")

    card = pushed.predict_top_card("secret", Tier.BLOCKS)
    assert card.assignment.prompt == "Do not commit yet: config.yml:2 holds an AWS access key"
    pushed.engine.cards.dismiss(card.id)
    assert "secret" not in pushed.predict_kinds()

    pushed.commit("Configure", days_ago=0)
    pushed.predict_top_card("secret", Tier.AT_RISK)  # the dismissal does not cover what got worse


@pytest.mark.long
def test_a_key_staged_for_the_first_commit(situation: Situation) -> None:
    situation.write("config.yml", f"region: eu\nkey: {KEY}\n")
    situation.git("add", "config.yml")
    card = situation.predict_top_card("secret")
    assert card.assignment.prompt == "Do not commit yet: config.yml:2 holds an AWS access key"
    session = situation.approve(card)
    assert (session.outcome, session.summary) == (PROBLEM_FOUND, "Do not commit: config.yml:2 holds an AWS access key")
    assert "Remove the secret from config.yml" in situation.read_transcript(session)


@pytest.mark.long
def test_a_file_of_keys_in_a_repository_without_a_remote(shop: Situation) -> None:
    shop.git("switch", "-q", "-c", "deploy")
    shop.commit("Deploy", {".env": "DATABASE=shop\n"}, days_ago=0.1)
    card = shop.predict_card("secret")
    assert card.tier is Tier.BLOCKS
    assert card.assignment.prompt == "Do not push yet: .env is a file that holds keys"
    assert "git rm -r --cached --force -- .env" in shop.read_transcript(shop.approve(card))


# Commits that no branch holds, and rewritten commits, which are not lost. Each helper rewrites the commit “Invoices”.


@pytest.mark.long
def test_commits_on_a_detached_head(shop: Situation) -> None:
    shop.checkout("--detach", days_ago=1)
    shop.commit("Try tax", {"tax.py": "RATE = 7\n"}, days_ago=0.5)
    tip = shop.commit("Use tax", {"tax.py": "RATE = 19\n"}, days_ago=0.4)

    card = shop.predict_top_card("lost_commits", Tier.AT_RISK)
    assert card.assignment.prompt == "Make a branch for 2 commits that no branch holds"
    assert card.reasoning == (
        "HEAD is detached: 2 commits up to “Use tax” are on no branch, and the next checkout leaves them behind."
    )
    session = shop.approve(card)
    assert session.summary == f"Made rescued-{tip[:10]} (2 commits); to remove it: `git branch -D rescued-{tip[:10]}`"
    assert shop.git("rev-parse", f"rescued-{tip[:10]}") == tip
    assert shop.git("branch", "--show-current") == "", "nothing is checked out"
    assert "lost_commits" not in shop.predict_kinds()


@pytest.mark.long
def test_commits_that_a_reset_left(shop: Situation) -> None:
    tip = shop.commit("Invoices", {"bill.py": "def bill(cart):\n    return cart.total\n"}, days_ago=2)
    shop.git("reset", "-q", "--hard", "HEAD~1", days_ago=1)
    card = shop.predict_top_card("lost_commits")
    assert card.reasoning == "“Invoices” is on no branch any more, left yesterday 09:30."
    shop.approve(card)
    assert shop.git("branch", "--contains", tip).strip() == f"rescued-{tip[:10]}"


def test_commits_of_a_deleted_branch(shop: Situation) -> None:
    shop.checkout("-b", "idee/größe", days_ago=3)
    shop.commit("An idea", {"idea.py": "def idea():\n    return 42\n"}, days_ago=2)
    shop.checkout("main", days_ago=1)
    shop.git("branch", "-q", "-D", "idee/größe")
    shop.predict_top_card("lost_commits")


def amend(situation: Situation) -> None:
    situation.write("cart.py", ROUND["cart.py"])
    situation.git("commit", "-qa", "--amend", "-m", "Another name", days_ago=0.2)


def rebase(situation: Situation) -> None:
    situation.checkout("-b", "feature", "HEAD~1", days_ago=0.9)
    situation.commit("Feature", {"feature.py": "def feature():\n    return True\n"}, days_ago=0.8)
    situation.git("rebase", "-q", "main", days_ago=0.7)


def squash(situation: Situation) -> None:
    situation.commit("More", {"more.py": "def more():\n    return 'more of it'\n"}, days_ago=0.8)
    situation.git("reset", "-q", "--soft", "HEAD~2", days_ago=0.7)
    situation.git("commit", "-qm", "Both at once", days_ago=0.6)


def squash_merge(situation: Situation) -> None:
    situation.checkout("-b", "feature", days_ago=0.9)
    situation.commit("Part one", {"feature.py": "def feature():\n    return True\n"}, days_ago=0.8)
    situation.commit("Part two", {"other.py": "def other():\n    return None\n"}, days_ago=0.7)
    situation.checkout("main", days_ago=0.6)
    situation.git("merge", "-q", "--squash", "feature", days_ago=0.6)
    situation.git("commit", "-qm", "Feature (#1)", days_ago=0.6)
    situation.git("branch", "-q", "-D", "feature", days_ago=0.5)
    situation.commit("Feature goes on", {"other.py": "def other():\n    return None  # yet\n"}, days_ago=0.4)


def autosquash(situation: Situation) -> None:
    situation.commit("fixup! Invoices", {"bill.py": "def bill(cart):\n    return round(cart.total)\n"}, days_ago=0.8)
    situation.git("-c", "sequence.editor=:", "rebase", "-q", "-i", "--autosquash", "HEAD~2", days_ago=0.7)


def reset_and_keep_files(situation: Situation) -> None:
    situation.git("reset", "-q", "HEAD~1", days_ago=0.7)


def check_out_from_others(situation: Situation) -> None:
    situation.git(
        "-c", "user.name=X", "-c", "user.email=x@example.org", "commit", "-q", "--allow-empty", "-m", "Theirs"
    )
    commit_of_other = situation.git("rev-parse", "HEAD")
    situation.git("reset", "-q", "--hard", "HEAD~1")
    (situation.path / ".git/logs/HEAD").unlink()
    (situation.path / ".git/logs/refs/heads/main").unlink()
    situation.checkout("--detach", commit_of_other)


@pytest.mark.long
@pytest.mark.parametrize(
    "rewrite",
    [amend, rebase, squash, squash_merge, autosquash, reset_and_keep_files, check_out_from_others],
)
def test_rewritten_commits_are_not_lost(shop: Situation, rewrite: Callable[[Situation], None]) -> None:
    shop.commit("Invoices", {"bill.py": "def bill(cart):\n    return cart.total\n"}, days_ago=1)
    rewrite(shop)
    assert "lost_commits" not in shop.predict_kinds()


@pytest.mark.long
def test_fixup_commits_are_squashed_in_rehearsal(pushed: Situation) -> None:
    pushed.commit("Round the total", ROUND, days_ago=0.9)
    pushed.commit("Notes", {"notes.txt": "a\n"}, days_ago=0.8)
    pushed.commit("fixup! Round the total", {"cart.py": ROUND["cart.py"].replace("2", "3")}, days_ago=0.7)
    pushed.commit("squash! Notes", {"notes.txt": "a\nb\n"}, days_ago=0.6)
    head = pushed.git("rev-parse", "HEAD")

    card = pushed.predict_card("autosquash")
    assert card.tier is Tier.CHECK
    assert card.assignment.prompt == "Rehearse squashing 2 fixup commits into “Notes” and “Round the total”"
    session = pushed.approve(card)
    onto = pushed.git("rev-parse", "--short=10", "origin/main")
    assert session.summary.startswith(
        "The autosquash is clean: 4 commits would become 2, with the same files at the end"
    )
    assert session.summary.endswith(f"to do it: `git -c sequence.editor=: rebase -i --autosquash {onto}`")
    assert pushed.git("rev-parse", "HEAD") == head

    pushed.git("-c", "sequence.editor=:", "-c", "core.editor=:", "rebase", "-q", "-i", "--autosquash", onto)
    assert not {"autosquash", "lost_commits"} & {*pushed.predict_kinds()}


@pytest.mark.long
def test_a_fixup_that_conflicts_on_the_way(shop: Situation) -> None:
    shop.commit("Table", {"table.txt": "one\n"}, days_ago=3)
    shop.commit("Other", {"table.txt": "two\n"}, days_ago=2)
    shop.commit("fixup! Table", {"table.txt": "three\n"}, days_ago=1)
    card = shop.predict_card("autosquash")
    session = shop.approve(card)
    assert session.summary.startswith("The autosquash stops at ")
    assert session.summary.endswith(" in table.txt")


def test_fixups_that_are_pushed_are_left_alone(shop: Situation) -> None:
    shop.commit("Round the total", ROUND, days_ago=0.9)
    shop.commit("fixup! Round the total", {"notes.txt": "a\n"}, days_ago=0.7)
    shop.add_remote()
    assert "autosquash" not in shop.predict_kinds()


@pytest.mark.long
def test_stashes_of_three_weeks_ago(shop: Situation) -> None:
    shop.write("cart.py", ROUND["cart.py"])
    shop.git("stash", "push", "-q", "-m", "rounding", days_ago=22)
    shop.write("größe neu.txt", "a\n")
    shop.git("stash", "push", "-q", "-u", days_ago=21)
    shop.commit("Round the total", ROUND, days_ago=20)
    assert shop.git("stash", "list").count("\n") == 1

    card = shop.predict_card("old_stash")
    assert card.tier is Tier.UPKEEP
    assert card.assignment.prompt == "Look at 2 old stashes: what is in them, and do they still apply?"
    assert card.reasoning == (
        "“rounding” made on main with cart.py has been waiting since 14 December 2025, and 1 other older than two "
        "weeks."
    )
    session = shop.approve(card)
    assert "stash@{1} (rounding): already in HEAD" in session.summary
    assert "stash@{0} (" in session.summary
    assert ": still applies" in session.summary
    assert "`git stash drop stash@{1}`" in shop.read_transcript(session)
    assert shop.git("stash", "list").count("\n") == 1, "the stashes stay"


def test_a_stash_of_last_week_is_no_card(shop: Situation) -> None:
    shop.write("cart.py", ROUND["cart.py"])
    shop.git("stash", days_ago=6)
    assert "old_stash" not in shop.predict_kinds()


@pytest.mark.long
def test_merged_and_stale_branches_are_listed_but_not_checked_out_ones(situation: Situation) -> None:
    situation.commit_shop(days_ago=90)
    for name in ("done", "elsewhere"):
        situation.git("branch", "-q", name)
    situation.git("worktree", "add", "-q", str(situation.path.parent / "elsewhere"), "elsewhere")
    situation.checkout("-b", "old", days_ago=60)
    situation.commit("Old idea", {"old.py": "x = 1\n"}, days_ago=60)
    situation.checkout("main")
    situation.commit("Now", {"now.py": "x = 1\n"}, days_ago=1)
    situation.run_tests()

    card = situation.predict_card("report_branches")
    assert card.assignment.prompt == "List 1 merged branch and 1 stale branch, with the commands that delete them"
    assert card.reasoning.startswith("done: merged; old: without a commit for 30 days.")
    session = situation.approve(card)
    transcript = situation.read_transcript(session)
    assert "git branch -d -- done" in transcript
    assert "git branch -d -- elsewhere" not in transcript
    shutil.rmtree(situation.path.parent / "elsewhere")


@pytest.mark.long
def test_a_large_file_in_an_unpushed_commit(pushed: Situation) -> None:
    pushed.commit("Numbers", {"data/dump.bin": "0" * 60_000_000}, days_ago=0.1)

    card = pushed.predict_top_card("large_file", Tier.AT_RISK)
    assert card.assignment.prompt == "Do not push yet: data/dump.bin is 60 MB"
    session = pushed.approve(card)
    assert session.summary == "Do not push: data/dump.bin is 60 MB (in 1 unpushed commit)"
    transcript = pushed.read_transcript(session)
    assert "git rm -r --cached --force -- data/dump.bin" in transcript
    assert "git commit --amend" in transcript


@pytest.mark.long
def test_a_dump_that_was_removed_again_and_one_that_is_staged(pushed: Situation) -> None:
    pushed.git("switch", "-q", "-c", "numbers")
    pushed.commit("Numbers", {"db backup.sql": "insert\n" * 300_000}, days_ago=0.3)
    (pushed.path / "db backup.sql").unlink()
    pushed.commit("Without the numbers", days_ago=0.2)
    card = pushed.predict_top_card("large_file", Tier.AT_RISK)
    assert card.assignment.prompt == "Do not push yet: db backup.sql in the history is 2.1 MB (database dump)"
    base = pushed.git("rev-parse", "main")
    assert f"  git reset --soft {base[:10]}\nCommit the rest" in pushed.read_transcript(pushed.approve(card))

    pushed.git("reset", "-q", "--hard", "main")
    pushed.write("all.zip", "0" * 3_000_000)
    assert "large_file" not in pushed.predict_kinds()  # git does not know it
    pushed.git("add", "all.zip")
    card = pushed.predict_card("large_file")
    assert card.tier is Tier.BLOCKS
    assert card.assignment.prompt == "Do not commit yet: all.zip is 3.0 MB (archive)"
