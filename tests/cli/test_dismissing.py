"""Dismissals with their reasons, what stays away, and what was thrown away, as a script sees them (SPEC 2.9, 2.12)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Clawpy


@pytest.fixture
def project(demo_project: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo's repository, and the current folder."""
    folder = demo_project(tmp_path / "shop")
    monkeypatch.chdir(folder)
    return folder


def kinds(clawpy: Clawpy, verb: str) -> dict[str, str]:
    return {prediction["flow"]: prediction["id"] for prediction in clawpy(verb, "--json").document["predictions"]}


@pytest.mark.long
def test_a_dismissal_with_a_reason_is_listed_and_lifted(clawpy: Clawpy, project: Path) -> None:
    assert clawpy("muted").out == "Nothing is muted.\n"
    card = kinds(clawpy, "predict")["forecast_conflicts"]
    assert clawpy("dismiss", card, "--reason", "wrong").code == 0
    assert "forecast_conflicts" not in kinds(clawpy, "predict")
    [mute] = clawpy("muted", "--json").document["muted"]
    assert (mute["kind"], mute["reason"], mute["prediction"], mute["workspace"]) == (
        "forecast_conflicts", "wrong", card, str(project),
    )  # fmt: skip
    assert mute["until"] > mute["since"]
    told = clawpy("muted").out
    assert "dismissed once, most recently as “wrong”" in told
    assert "`clawpy muted unmute ID` lets its cards appear again" in told
    lifted = clawpy("muted", "unmute", mute["id"].removeprefix("mute_")[:6])
    assert (lifted.code, "unmuted" in lifted.out) == (0, True)
    assert clawpy("muted", "--json").document == {"muted": []}
    assert "forecast_conflicts" in kinds(clawpy, "predict")


@pytest.mark.long
def test_what_was_thrown_away_is_discarded_in_every_list(clawpy: Clawpy, project: Path) -> None:
    card = clawpy("propose", "draft_changelog", "--json").document["predictions"][0]["id"]
    assert clawpy("approve", card, "--wait").code == 0
    thrown = clawpy("discard", card, "--json").document
    assert thrown["prediction"]["outcome"] == "discarded"
    assert (thrown["session"]["state"], thrown["changeSet"]["state"]) == ("discarded", "discarded")
    for verb in ("work", "status"):
        told = clawpy(verb).out
        assert ("discarded" in told, "succeeded" in told) == (True, False)
    assert "  discarded  shop" in clawpy("work", card).out
    assert clawpy("metrics", "--json").document["ownPrompts"] == 1
