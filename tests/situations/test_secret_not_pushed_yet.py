"""A secret is in a commit that nobody else has yet, or about to be committed."""

from __future__ import annotations

import pytest

from engine.model import PROBLEM_FOUND, Tier
from tests.situations.conftest import Situation

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
    assert done.summary.startswith("Do not push: 1 likely secret, the first in shop/Zugänge prod.py:2")
    transcript = monday.transcript(done)
    assert f"edit {culprit[:10]}" in transcript
    assert "git rebase -i origin/main" in transcript
    assert KEY not in transcript + done.summary + repr(first)
    assert done.outcome == PROBLEM_FOUND

    again = monday.first("secret")
    assert again.id != first.id, "it warns until the key is gone"
    assert "says how to take it out." in again.reasoning
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
    assert "a later commit removed it, but the history still has it" in first.reasoning
    monday.git("push", "-q", "origin", "upload")
    assert "secret" not in monday.kinds()  # too late: nothing is about to be pushed


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
    assert (done.outcome, done.summary) == (PROBLEM_FOUND, "Do not commit: 1 likely secret, the first in config.yml:2")
    assert "move the secret out of the file" in monday.transcript(done)


@pytest.mark.long
def test_a_file_of_keys_in_a_repository_without_a_remote(monday: Situation) -> None:
    monday.commit_shop()
    monday.git("switch", "-q", "-c", "deploy")
    monday.commit("Deploy", {".env": "DATABASE=shop\n"}, days_ago=0.1)
    card = monday.card("secret")
    assert card.tier is Tier.BLOCKS
    assert card.assignment.prompt == "Do not push yet: .env is a file that holds keys"
    assert "git rm -r --cached .env" in monday.transcript(monday.approve(card))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (".env.example", "KEY=q8Zr2Lk9Xw4Tn7Bv\n"),
        ("tests/test_upload.py", SETTINGS),
        ("config.py", 'KEY = "AKIAIOSFODNN7EXAMPLE"\nPASSWORD = "changeme-please-1"\n'),
        ("yarn.lock", 'token@^1: "q8Zr2Lk9Xw4Tn7Bvq8Zr2Lk9"\n'),
        ("shop/login.py", "def login(token: str, password: str) -> None:\n    secret = hash(token + password)\n"),
    ],
)
def test_nothing_secret(monday: Situation, path: str, text: str) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.commit("Upload", {path: text}, days_ago=0.1)
    assert "secret" not in monday.kinds()
