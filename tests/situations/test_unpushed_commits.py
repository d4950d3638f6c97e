"""A secret, a large file or a fixup in a commit that nobody else has, or about to be committed (SPEC 2.9)."""

import pytest

from engine.model import ALREADY_REVIEWED, PROBLEM_FOUND, Refusal, Tier
from tests.situations.situation import HARMLESS_TOTAL, ROUNDED_TOTAL, Situation

pytestmark = pytest.mark.long

KEY = "AK" + "IA" + "Q7W2E9R4T1Y8U3I6"  # put together here so that no scanner takes this file for a leak
KEY_FILE = "shop/Zugänge prod.py"
SETTINGS = f'REGION = "eu"\nKEY = "{KEY}"\n'


@pytest.fixture
def with_key(pushed: Situation) -> Situation:
    """A repository with a key in a commit that is not pushed, and another commit above it."""
    pushed.commit("Upload to the bucket", {KEY_FILE: SETTINGS}, days_ago=0.1)
    pushed.commit("Faster cart", {"cart.py": HARMLESS_TOTAL}, days_ago=0.05)
    return pushed


def make_fixup_command(situation: Situation) -> str:
    """The command that takes the key of `with_key` out of its commit."""
    culprit = situation.git("rev-parse", "HEAD~1")
    return f"  git commit -m 'fixup! {culprit[:10]}' -- '{KEY_FILE}'"


def test_a_key_in_an_unpushed_commit_is_named_with_the_commands_that_take_it_out(with_key: Situation):
    card = with_key.predict_top_card("secret", Tier.AT_RISK, f"Do not push yet: {KEY_FILE}:2 holds an AWS access key")
    assert card.reasoning == (
        "It came in with “Upload to the bucket”, which no remote has yet. "
        "Approving this lists the commands that take it out, and changes nothing."
    )
    session = with_key.approve(card)
    assert session.summary.startswith(f"Do not push: {KEY_FILE}:2 holds an AWS access key")
    transcript = with_key.read_transcript(session)
    assert make_fixup_command(with_key) in transcript
    assert KEY not in transcript + session.summary + repr(card)
    assert session.outcome == PROBLEM_FOUND


def test_a_key_that_was_reviewed_is_warned_of_and_reviewed_again_only_after_a_change(with_key: Situation):
    card = with_key.predict_top_card("secret")
    with_key.approve(card)
    next_card, *_ = with_key.engine.cards.list_pending()
    assert next_card.kind == "secret"
    assert next_card.id != card.id, "it is back at once, and warns until the key is gone"
    assert "You reviewed it at 09:30; the details say how to take it out." in next_card.reasoning
    assert make_fixup_command(with_key) in next_card.reasoning.splitlines()
    with pytest.raises(Refusal, match="nothing has changed since") as raised:
        with_key.engine.cards.approve(next_card.id)
    assert raised.value.code == ALREADY_REVIEWED
    assert with_key.engine.cards.list_pending()[0] == next_card, "no run, and no decision"
    with_key.commit("Another commit", {"notes.txt": "x\n"}, days_ago=0)
    assert with_key.approve(with_key.predict_top_card("secret")).outcome == PROBLEM_FOUND, "it runs after a change"


def test_a_key_is_named_where_the_name_of_its_file_reads_like_a_command(pushed: Situation):
    pushed.commit("Upload", {"x; rm -rf ~/conf.py": SETTINGS}, days_ago=0.2)

    card = pushed.predict_top_card(
        "secret", Tier.AT_RISK, "Secret about to be pushed, with a name that reads like a command"
    )
    assert pushed.problem == "do not push yet: x; rm -rf ~/conf.py:2 holds an AWS access key"
    session = pushed.approve(card)
    assert session.summary.startswith("Do not push: x; rm -rf ~/conf.py:2 holds an AWS access key")


def test_a_staged_key_becomes_more_urgent_when_it_is_committed(pushed: Situation):
    pushed.write("config.yml", f"region: eu\nkey: {KEY}\n")
    pushed.git("add", "config.yml")

    card = pushed.predict_top_card("secret", Tier.BLOCKS, "Do not commit yet: config.yml:2 holds an AWS access key")
    pushed.engine.cards.dismiss(card.id)
    assert "secret" not in pushed.predict_kinds()

    pushed.commit("Configure", days_ago=0)
    pushed.predict_top_card("secret", Tier.AT_RISK)  # the dismissal does not cover what got worse


def test_a_large_file_in_an_unpushed_commit_is_named(pushed: Situation):
    pushed.commit("Numbers", {"data/dump.bin": "0" * 60_000_000}, days_ago=0.1)

    session = pushed.approve(
        pushed.predict_top_card("large_file", Tier.AT_RISK, "Do not push yet: data/dump.bin is 60 MB")
    )
    assert session.summary == "Do not push: data/dump.bin is 60 MB (in 1 unpushed commit)"
    transcript = pushed.read_transcript(session)
    assert "git rm -r --cached --force -- data/dump.bin" in transcript
    assert "git commit --amend" in transcript


def test_fixup_commits_are_squashed_in_rehearsal(pushed: Situation):
    pushed.commit("Round the total", {"cart.py": ROUNDED_TOTAL}, days_ago=0.9)
    pushed.commit("Notes", {"notes.txt": "a\n"}, days_ago=0.8)
    pushed.commit("fixup! Round the total", {"cart.py": ROUNDED_TOTAL.replace("2", "3")}, days_ago=0.7)
    pushed.commit("squash! Notes", {"notes.txt": "a\nb\n"}, days_ago=0.6)
    head = pushed.git("rev-parse", "HEAD")

    session = pushed.approve(
        pushed.predict_card(
            "autosquash", Tier.CHECK, "Rehearse squashing 2 fixup commits into “Notes” and “Round the total”"
        )
    )
    onto = pushed.git("rev-parse", "--short=10", "origin/main")
    assert session.summary.startswith(
        "The autosquash is clean: 4 commits would become 2, with the same files at the end"
    )
    assert session.summary.endswith(f"to do it: `git -c sequence.editor=: rebase -i --autosquash {onto}`")
    assert pushed.git("rev-parse", "HEAD") == head

    pushed.git("-c", "sequence.editor=:", "-c", "core.editor=:", "rebase", "-q", "-i", "--autosquash", onto)
    assert not {"autosquash", "lost_commits"} & {*pushed.predict_kinds()}
