"""Verbs that open a real engine of their own, on the demo's repository (SPEC 7.5)."""

from pathlib import Path
from typing import Any

import pytest

from engine import read_completion_names
from engine.api.offline import read_rows
from engine.home import Home
from tests.cli.calls import Clawpy, get_document
from tests.support.checks import assert_contains
from tests.support.repository import Repository
from tests.support.settings import write_settings

SHOWN = "SELECT count(shown_at) FROM predictions"
"""How many cards a person saw."""


@pytest.fixture
def approved_card(clawpy: Clawpy, project: Path) -> dict[str, Any]:
    """What `approve` answered for the card that drafts a changelog; its change waits to be landed."""
    cards = get_document(clawpy("predict", "--json"))["predictions"]
    card = next(card for card in cards if card["flow"] == "draft_changelog")
    assert (card["workspace"], card["targetChannel"], card["status"]) == (str(project), "chronicle-hub", "pending")
    return get_document(clawpy("approve", card["id"].removeprefix("pred_"), "--json"))


def test_verbs_print_what_waits_and_what_they_did(clawpy: Clawpy, project: Path, home: Home):
    cards = {card["flow"]: card["id"] for card in get_document(clawpy("predict", "--json"))["predictions"]}
    assert read_rows(home.database, SHOWN) == [(0,)], "a script has read them"
    draft = cards["draft_changelog"]
    listed = clawpy("cards").out
    assert_contains(listed, f"{draft}  upkeep  my shop ü → chronicle-hub\n", "    read-only · runs: run_tests\n")
    assert "\x1b" not in listed, "no colour into a pipe"
    approved = clawpy("approve", draft.removeprefix("pred_")[:6])
    assert_contains(approved.out, f"{draft}  finished", "  │ left out: Bump version to 1.3\n", "waiting  1 file\n")
    assert "\nmodified CHANGELOG.md\n@@ -1,5 +1,13 @@  hunk 1\n" in clawpy("work", draft, "--diff").out
    assert "no model calls: a flow runs without a model" in clawpy("xray", draft).out
    assert_contains(clawpy("status").out, "  3 cards pending\n", "needs you  change_", "land 1 file?")
    assert clawpy("status", "--format", "short").out == "🔮 3\n"
    assert "snoozed until" in clawpy("snooze", cards["forecast_conflicts"], "--for", "30m").out
    assert "dismissed" in clawpy("dismiss", cards["look_for_leftovers"]).out
    assert "do not disturb until" in clawpy("dnd", "--for", "90m").out
    assert_contains(clawpy("status").out, "do not disturb until", "  finished  Add", "decisions\n", "  dismissed  ")
    assert clawpy("dnd", "off").out.startswith("Do not disturb is off")
    assert "this card has not run yet" in clawpy("land", cards["run_tests"]).err
    assert clawpy("land", draft).out.startswith("Landed 1 file. Undo: `clawpy undo change_")


@pytest.fixture
def card_id(approved_card: dict[str, Any]) -> str:
    return approved_card["prediction"]["id"]


@pytest.fixture
def change_id(approved_card: dict[str, Any]) -> str:
    return approved_card["changeSet"]["id"]


@pytest.mark.long
def test_a_card_is_approved_landed_and_undone(
    clawpy: Clawpy, project: Path, home: Home, approved_card: dict[str, Any], card_id: str, change_id: str
):
    prediction = approved_card["prediction"]
    assert (prediction["status"], prediction["outcome"]) == ("executed", "succeeded")
    assert (approved_card["session"]["state"], approved_card["changeSet"]["state"]) == ("succeeded", "waiting")
    before = (project / "CHANGELOG.md").read_text()
    landed = get_document(clawpy("land", change_id, "--json"))
    assert landed["changeSet"]["state"] == "landed"
    assert "Discounts without floating point" in (project / "CHANGELOG.md").read_text()
    undone = get_document(clawpy("undo", card_id, "--json"))
    assert undone["changeSet"]["state"] == "undone"
    assert (project / "CHANGELOG.md").read_text() == before
    assert "land 1 file again?" in clawpy("status").out
    assert list(read_completion_names(home, "changes")) == [change_id]
    assert [change["id"] for change in get_document(clawpy("work", "--json"))["changeSets"]] == [change_id]


@pytest.mark.long
def test_a_hunk_lands_and_one_that_does_not_exist_is_refused(clawpy: Clawpy, card_id: str):
    assert "no hunk 2" in clawpy("land", card_id, "--only", "CHANGELOG.md", "--hunk", "2").err
    assert "it does not change nope" in clawpy("land", card_id, "--only", "nope").err
    assert "see `clawpy work`" in clawpy("land", "zzzz").err
    part = get_document(clawpy("land", card_id, "--only", "CHANGELOG.md", "--hunk", "1", "--json"))
    assert part["changeSet"]["state"] == "landed"  # the only hunk of the only file


@pytest.mark.long
def test_sessions_of_other_repositories_are_counted_and_named(
    clawpy: Clawpy, project: Path, card_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(Repository(tmp_path / "other").path)
    assert clawpy("work").out.startswith(f"Nothing has run here; 1 session in {project}.\n")
    assert get_document(clawpy("work", "--json"))["elsewhere"] == {str(project): 1}
    assert "Nothing changed yet. Add `--yes`" in clawpy("discard", card_id).out
    assert f"discarded  1 file  in {project}\n" in clawpy("discard", card_id, "--yes").out


@pytest.mark.long
def test_a_comment_stays_with_the_changes_until_it_is_removed(clawpy: Clawpy, card_id: str):
    [comment] = get_document(clawpy("comment", card_id, "CHANGELOG.md:1", "shorter", "--json"))["changeSet"]["comments"]
    assert (comment["number"], comment["line"], comment["text"]) == (1, 1, "shorter")
    assert "comment 1 on CHANGELOG.md:1" in clawpy("work", card_id, "--diff").out
    assert "its comments stay as notes" in clawpy("comment", card_id, "--send").err
    assert clawpy("land", card_id).out.endswith("\n1 comment of yours not sent\n")
    clawpy("undo", card_id)
    assert "comment 1" not in clawpy("comment", card_id, "--remove", "1").out
    assert "The commit is not signed, and no hooks ran." in clawpy("branch", card_id).out


@pytest.mark.long
def test_what_was_remembered_is_forgotten_only_after_a_yes(clawpy: Clawpy, tmp_path: Path):
    turns = tmp_path / "turns.jsonl"
    turns.write_text(f'{{"id": "t0", "text": "{4_500_000 * "x"}"}}\n{{"id": "t1", "text": "my number is 555 0101"}}\n')
    remembered = clawpy("remember", str(turns))
    assert remembered.code == 0
    assert "line 1: 4,500,025 characters is too long" in remembered.err
    assert clawpy("forget", "555 0101").code == 1
    assert clawpy("forget", "555 0101", "--yes").code == 0


@pytest.mark.long
def test_a_stop_is_ended_although_the_settings_are_broken(clawpy: Clawpy, home: Home):
    assert clawpy("stop").code == 0
    write_settings(home, 'crossPollEnabled = true\nbad = "')
    assert "config.toml:2: the file ends too early" in clawpy("status").err
    resumed = clawpy("resume")
    assert (resumed.code, resumed.err) == (0, "")
    assert resumed.out.startswith("▶ Resumed after the stop of ")
    assert "▲ The settings are not used: " in resumed.out
    home.config_file.unlink()
    assert get_document(clawpy("status", "--json"))["holds"] == []
