"""Operations on cards (SPEC 9.8): listed, shown, predicted, snoozed, and proposed as a continuation.

The stand-in engine has two pending cards: `pred_abc1` in /srv/shop and `pred_abd2` in /srv/other.
"""

from datetime import timedelta

from tests.api.operations.conftest import Ask
from tests.api.stand_in import StandIn


def test_cards_of_named_workspaces_and_channels_only(ask: Ask):
    assert [card["id"] for card in ask("cards", workspaces=["/srv/other"])["predictions"]] == ["pred_abd2"]
    assert ask("cards", channel="garden")["predictions"] == []


def test_only_what_a_person_sees_counts_as_shown(engine: StandIn, ask: Ask):
    ask("cards")
    assert engine.cards.shown == []
    ask("cards", shown=True)
    assert engine.cards.shown == ["pred_abc1", "pred_abd2"]


def test_predict_says_what_is_pending_and_what_the_cycle_did(ask: Ask):
    document = ask("predict", workspaces=["/srv/shop"])
    assert [card["id"] for card in document["predictions"]] == ["pred_abc1"]
    assert (document["created"], document["withdrawn"], document["errors"]) == (
        ["pred_abc1"], ["pred_old"], ["gh: not there"],
    )  # fmt: skip


def test_a_card_is_snoozed_for_two_hours_or_as_long_as_is_asked(engine: StandIn, ask: Ask):
    ask("snooze", id="pred_abc1")
    ask("snooze", id="pred_abc1", seconds=60)
    assert engine.cards.spans == [timedelta(hours=2), timedelta(minutes=1)]


def test_propose_continues_a_session_in_its_workspace(engine: StandIn, ask: Ask):
    [session] = engine.sessions.list(limit=1)
    ask("propose", text="now the docs", continues=session.id)
    [proposed] = engine.cards.proposed
    assert (proposed["continues"], proposed["workspace"]) == (session.id, session.workspace)


def test_a_list_of_tasks_says_when_it_leaves_some_out(ask: Ask):
    for title in ("ship it", "tidy up"):
        ask("tasks", action="add", title=title)
    shown = ask("tasks", limit=1)
    assert (len(shown["tasks"]), shown["more"]) == (1, True)
    assert not ask("tasks", limit=2)["more"]
