"""A large file in a commit that nobody else has, or about to be committed, is warned of before the push (SPEC 2.9)."""

import pytest

from engine.model import Tier
from tests.situations.situation import Situation


@pytest.mark.long
def test_a_large_file_in_an_unpushed_commit_is_named(pushed: Situation):
    pushed.commit("Numbers", {"data/dump.bin": "0" * 60_000_000}, days_ago=0.1)

    session = pushed.approve(
        pushed.predict_top_card("large_file", Tier.AT_RISK, "Do not push yet: data/dump.bin is 60 MB")
    )
    assert session.summary == "Do not push: data/dump.bin is 60 MB (in 1 unpushed commit)"
    transcript = pushed.read_transcript(session)
    assert "git rm -r --cached --force -- data/dump.bin" in transcript
    assert "git commit --amend" in transcript


@pytest.mark.long
def test_a_dump_is_named_when_it_was_removed_again_and_when_it_is_staged(pushed: Situation):
    pushed.git("switch", "-q", "-c", "numbers")
    pushed.commit("Numbers", {"db backup.sql": "insert\n" * 300_000}, days_ago=0.3)
    (pushed.path / "db backup.sql").unlink()
    pushed.commit("Without the numbers", days_ago=0.2)
    card = pushed.predict_top_card(
        "large_file", Tier.AT_RISK, "Do not push yet: db backup.sql in the history is 2.1 MB (database dump)"
    )
    base = pushed.git("rev-parse", "main")
    assert f"  git reset --soft {base[:10]}\nCommit the rest" in pushed.read_transcript(pushed.approve(card))

    pushed.git("reset", "-q", "--hard", "main")
    pushed.write("all.zip", "0" * 3_000_000)
    assert "large_file" not in pushed.predict_kinds()  # git does not know it
    pushed.git("add", "all.zip")
    card = pushed.predict_card("large_file", Tier.BLOCKS, "Do not commit yet: all.zip is 3.0 MB (archive)")
