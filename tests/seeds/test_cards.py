"""Cards that suggest themselves, and what you do with them (sections 2 and 9 of docs/SPEC.md).

A test is named after the part that it shows. What must hold is the first line of its docstring.
"""

import json

import pytest

from engine.model import DecisionSignal, Refusal, SessionState
from tests.seeds.operator_world import GREEN, OperatorWorld, find_verdict
from tests.support.model_server import Reply, make_call
from tests.support.repository import add_conflicting_branches


def test_signals(closed_world: OperatorWorld):
    """2.1: Six signals are looked at for each card; each says how much it counts here and what it saw."""
    calendar = closed_world.home.root / "work.ics"
    calendar.parent.mkdir(parents=True, exist_ok=True)
    calendar.write_text(
        "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:t\nBEGIN:VEVENT\nUID:1\nSUMMARY:Review of the cart\n"
        "DTSTAMP:20260101T000000Z\nDTSTART:20260105T100000Z\nDTEND:20260105T110000Z\nEND:VEVENT\nEND:VCALENDAR\n"
    )
    closed_world.append_config(f'[calendar]\nfiles = ["{calendar}"]\n')
    add_conflicting_branches(closed_world.repository)
    with closed_world.opened():
        closed_world.carry_out(
            "tasks", action="add", title="Write the release notes", workspace=str(closed_world.repository.path)
        )
        card = closed_world.predict_card("kind", "forecast_conflicts")
        signals = {signal["name"]: signal for signal in card["signals"]}
        weights = {name: signal["weight"] for name, signal in signals.items()}
        assert weights == {
            "time": 0.3, "silence": 0.2, "tasks": 0.2, "conversations": 0.15, "git": 0.1, "calendar": 0.05,
        }  # fmt: skip
        assert signals["time"]["evidence"] == ["morning: review and plan"]
        assert "Review of the cart" in signals["calendar"]["evidence"][0]
        assert "Write the release notes" in signals["tasks"]["evidence"][0]
        assert all(0 <= signal["relevance"] <= 1 and not signal["error"] for signal in signals.values())


def test_active_tasks(world: OperatorWorld):
    """2.1: Open tasks become cards of their channel, those that have waited longest first."""
    shop = str(world.repository.path)
    old = world.carry_out("tasks", action="add", title="Fix the rounding of refunds", workspace=shop)["task"]
    world.advance(days=7)
    new = world.carry_out("tasks", action="add", title="Fix the names of coupons", workspace=shop)["task"]
    task_ids = [card["taskId"] for card in world.predict() if card["taskId"]]
    assert task_ids[:1] == [old["id"]]
    assert set(task_ids) <= {old["id"], new["id"]}


@pytest.mark.long
def test_twin_model(closed_world: OperatorWorld):
    """2.3: After thirty decisions a model that speaks for you is asked what comes next, and its answer is a card."""
    closed_world.configure(twinModelEnabled=True, twinModelId="openai:twin-1")
    answer = {"prompt": "Round the cart", "channel": "koji-core", "confidence": 0.9, "reasoning": "as on Mondays"}
    closed_world.server.answer = lambda request: Reply(text=json.dumps(answer))
    with closed_world.opened():
        closed_world.record_decisions("lint", DecisionSignal.APPROVED, 29)
        assert "twin-model" not in [card["source"] for card in closed_world.predict()]
        closed_world.record_decisions("lint", DecisionSignal.APPROVED, 1)
        card = closed_world.predict_card("source", "twin-model")
        assert (card["prompt"], card["targetChannel"]) == (answer["prompt"], answer["channel"])
        assert card["confidenceParts"]["twin"] == 0.9
        assert (closed_world.last_request.body["temperature"], closed_world.last_request.max_tokens) == (0.3, 200)


@pytest.mark.long
def test_channel_routing(vector_world: OperatorWorld):
    """2.4: What you ask goes to the channel whose work it is, by its meaning; an unknown channel is refused."""
    channel_of_prompt = {
        "Fix the rounding of prices in the cart": "koji-core",
        "Bring the handbook up to date with the last five commits": "chronicle-hub",
        "Think up three unusual ways to show a discount": "dream-weaver",
        "Find out how other shops price their delivery": "research",
        "Put what we know about our services into the knowledge graph": "garden",
    }
    with pytest.raises(Refusal, match="there is no channel"):
        vector_world.engine.cards.propose("Do it", workspace=str(vector_world.repository.path), channel="nowhere")
    assert {text: vector_world.propose_card(text)["targetChannel"] for text in channel_of_prompt} == channel_of_prompt


@pytest.mark.long
def test_confidence_bands(trusted_world: OperatorWorld):
    """2.5: Confidence is a sum of four parts that you see; what is unlikely is not shown, what is likely is marked."""
    add_conflicting_branches(trusted_world.repository)
    cards = {card["kind"]: card for card in trusted_world.predict()}
    conflicts = cards["forecast_conflicts"]
    parts = conflicts["confidenceParts"]
    assert {"twin", "pattern", "urgency", "time"} <= set(parts)
    assert conflicts["confidence"] == parts["total"]
    assert parts["fewDecisions"], "nothing was decided on this kind"
    bands = [(0.3, "discard"), (0.6, "card"), (0.8, "suggested"), (1.01, "act")]
    for card in cards.values():
        assert card["band"] == next(band for most, band in bands if card["confidence"] < most)
        assert card["band"] != "discard"


@pytest.mark.long
def test_confidence_follows_decisions(trusted_world: OperatorWorld):
    """2.5, 8.6: What you always approved is above 0.9; what you never decided on is as likely as anything new."""
    trusted_world.record_decisions("hunt_flakes", DecisionSignal.DISMISSED, 20)
    trusted_world.record_decisions("report_branches", DecisionSignal.APPROVED, 1)
    add_conflicting_branches(trusted_world.repository)
    confidences = {card["kind"]: card["confidence"] for card in trusted_world.predict()}
    assert confidences["report_branches"] > 0.9
    assert confidences["forecast_conflicts"] == pytest.approx(0.5, abs=0.1), "60 of 120 were approved"


def test_cold_start(world: OperatorWorld):
    """2.3, 2.6: On the first day cards come from what the repository shows, all at 0.4, and nothing runs by itself."""
    add_conflicting_branches(world.repository)
    cards = world.predict()
    assert cards
    assert {(card["source"], card["confidence"]) for card in cards} == {("template", 0.4)}
    assert "cart.py" in cards[0]["reasoning"], "it says what it saw here"
    phase = world.carry_out("status")["phase"]
    assert (phase["number"], phase["decisions"]) == (0, 0)
    assert "nothing runs by itself in phase 0" in find_verdict(cards[0], "gate")[1]


def test_predictor_hook(world: OperatorWorld):
    """2.8: Lines that other programs append to predictions.jsonl become cards; a bad line is named and harms none."""
    line = {
        "prediction": "Write the release notes",
        "confidence": 0.8,
        "channel": "chronicle-hub",
        "reasoning": "due",
    }
    (world.home.data / "predictions.jsonl").write_text(json.dumps(line) + "\n{\n")
    report = world.carry_out("predict")
    (card,) = [card for card in report["predictions"] if card["source"] == "predictor-hook"]
    assert (card["prompt"], card["targetChannel"], card["reasoning"]) == (
        "Write the release notes", "chronicle-hub", "due",
    )  # fmt: skip
    assert any("line 2" in error for error in report["errors"])


@pytest.mark.long
def test_follow_ups(world: OperatorWorld):
    """2.10: What ran may propose its next step: failing tests lead to a card that runs them again."""
    world.repository.commit("A cart", GREEN)
    assert world.run_flow("run_tests").state is SessionState.SUCCEEDED
    world.repository.commit("Break it", {"cart.txt": "4\n"})
    assert not world.run_flow("run_tests").check.green
    world.run_jobs("state")
    (card,) = [card for card in world.carry_out("cards")["predictions"] if card["source"] == "follow-up"]
    assert (card["kind"], card["flow"], card["status"]) == ("rerun_failing", "run_tests", "pending")


# A card


@pytest.mark.long
def test_swiping_cards(world: OperatorWorld):
    """2.7, 9.2: Right runs a card, left sends it away, up puts it off for 2 h; you may edit it first, and undo."""
    first = world.propose_card("Write a greeting into hello.txt")
    world.server.script(make_call("write", path="hello.txt", content="Hi\n"), "I wrote it.")
    session = world.approve(first["id"], edit="Write a short greeting into hello.txt")
    assert "Write a short greeting" in world.last_request.users[0]
    (change,) = world.engine.changes.list_newest()
    world.carry_out("land", id=change.id)
    assert (world.repository.path / "hello.txt").read_text() == "Hi\n"
    world.carry_out("undo", id=session.id)
    assert not (world.repository.path / "hello.txt").exists()
    add_conflicting_branches(world.repository)
    (second, *_) = world.predict()
    world.carry_out("snooze", id=second["id"])
    assert second["id"] not in [card["id"] for card in world.predict()]
    world.advance(hours=2)
    assert second["id"] in [card["id"] for card in world.predict()]
    world.carry_out("dismiss", id=second["id"])
    assert second["kind"] not in [card["kind"] for card in world.predict()], "away for 7 days"
    with pytest.raises(Refusal, match=r"dismissed|already|decided"):
        world.engine.cards.approve(second["id"])
