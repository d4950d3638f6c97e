"""Fixup commits that nobody else has are squashed in a rehearsal, which names the command that does it (SPEC 2.11)."""

import pytest

from engine.model import Tier
from tests.situations.situation import ROUNDED_TOTAL, Situation


@pytest.mark.long
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
