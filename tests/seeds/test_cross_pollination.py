"""Cards that suggest themselves, the rails around them, acting alone, and learning from decisions (sections 2, 3, 7 to
10 of docs/SPEC.md)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from clawpy_console.cli.status_bar import format_file_line as status_bar
from engine.api.status_bar_file import StatusBarFile
from engine.autonomy.state import AutonomyState
from engine.config.sections import Surface
from engine.model import (
    Assignment,
    DecidedBy,
    DecisionSignal,
    Outcome,
    Refusal,
    SessionState,
    Trigger,
    TriggerType,
)
from tests.api.notify.notification_server import NotificationServer
from tests.cli.conftest import add_conflicting_branches
from tests.execution.model.world import CHANNEL
from tests.seeds.world import Document, World
from tests.support.model_server import Reply, calls
from tests.support.training_server import TrainingServer

GREEN = {"Makefile": "test:\n\tgrep -q 3 cart.txt\n", "cart.txt": "3\n"}
"""A project whose test passes while a file has a 3."""

RAILS = {"rate", "loop", "cost", "content", "gate", "kill"}


def find_verdict(card: Document, rail: str) -> tuple[str, str]:
    """(verdict, reason) of a rail on a card."""
    return next((row["verdict"], row["reason"]) for row in card["verdicts"] if row["rail"] == rail)


# -- what is predicted


def test_signals(closed: World) -> None:
    """2.1: Six signals are looked at for each card; each says how much it counts here and what it saw."""
    calendar = closed.home.root / "work.ics"
    calendar.parent.mkdir(parents=True, exist_ok=True)
    calendar.write_text(
        "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:t\nBEGIN:VEVENT\nUID:1\nSUMMARY:Review of the cart\n"
        "DTSTAMP:20260101T000000Z\nDTSTART:20260105T100000Z\nDTEND:20260105T110000Z\nEND:VEVENT\nEND:VCALENDAR\n"
    )
    closed.append_config(f'[calendar]\nfiles = ["{calendar}"]\n')
    add_conflicting_branches(closed.repository)
    with closed.opened():
        closed.say("tasks", action="add", title="Write the release notes", workspace=str(closed.repository.path))
        card = closed.predict_card("kind", "forecast_conflicts")
        signals = {signal["name"]: signal for signal in card["signals"]}
        weights = {name: signal["weight"] for name, signal in signals.items()}
        assert weights == {
            "time": 0.3, "silence": 0.2, "tasks": 0.2, "conversations": 0.15, "git": 0.1, "calendar": 0.05,
        }  # fmt: skip
        assert signals["time"]["evidence"] == ["morning: review and plan"]
        assert "Review of the cart" in signals["calendar"]["evidence"][0]
        assert "Write the release notes" in signals["tasks"]["evidence"][0]
        assert all(0 <= signal["relevance"] <= 1 and not signal["error"] for signal in signals.values())


def test_active_tasks(world: World) -> None:
    """2.1: Open tasks become cards of their channel, those that have waited longest first."""
    shop = str(world.repository.path)
    old = world.say("tasks", action="add", title="Fix the rounding of refunds", workspace=shop)["task"]
    world.advance(days=7)
    new = world.say("tasks", action="add", title="Fix the names of coupons", workspace=shop)["task"]
    task_ids = [card["taskId"] for card in world.predict() if card["taskId"]]
    assert task_ids[:1] == [old["id"]]
    assert set(task_ids) <= {old["id"], new["id"]}


def test_twin_model(closed: World) -> None:
    """2.3: After thirty decisions a model that speaks for you is asked what comes next, and its answer is a card."""
    closed.configure(twinModelEnabled=True, twinModelId="openai:twin-1")
    answer = {"prompt": "Round the cart", "channel": "koji-core", "confidence": 0.9, "reasoning": "as on Mondays"}
    closed.server.answer = lambda request: Reply(text=json.dumps(answer))
    with closed.opened():
        closed.decide("lint", DecisionSignal.APPROVED, 29)
        assert "twin-model" not in [card["source"] for card in closed.predict()]
        closed.decide("lint", DecisionSignal.APPROVED, 1)
        card = closed.predict_card("source", "twin-model")
        assert (card["prompt"], card["targetChannel"]) == (answer["prompt"], answer["channel"])
        assert card["confidenceParts"]["twin"] == 0.9
        assert (closed.last_request.body["temperature"], closed.last_request.max_tokens) == (0.3, 200)


@pytest.mark.long
def test_channel_routing(meaning: World) -> None:
    """2.4: What you ask goes to the channel whose work it is, by its meaning; an unknown channel is refused."""
    channel_of_prompt = {
        "Fix the rounding of prices in the cart": "koji-core",
        "Bring the handbook up to date with the last five commits": "chronicle-hub",
        "Think up three unusual ways to show a discount": "dream-weaver",
        "Find out how other shops price their delivery": "research",
        "Put what we know about our services into the knowledge graph": "garden",
    }
    with pytest.raises(Refusal, match="there is no channel"):
        meaning.engine.cards.propose("Do it", workspace=str(meaning.repository.path), channel="nowhere")
    assert {text: meaning.propose_card(text)["targetChannel"] for text in channel_of_prompt} == channel_of_prompt


@pytest.mark.long
def test_confidence_bands(trusted: World) -> None:
    """2.5: Confidence is a sum of four parts that you see; what is unlikely is not shown, what is likely is marked."""
    add_conflicting_branches(trusted.repository)
    cards = {card["kind"]: card for card in trusted.predict()}
    shown = cards["forecast_conflicts"]
    parts = shown["confidenceParts"]
    assert {"twin", "pattern", "urgency", "time"} <= set(parts)
    assert shown["confidence"] == parts["total"]
    assert parts["fewDecisions"], "nothing was decided on this kind"
    bands = [(0.3, "discard"), (0.6, "card"), (0.8, "suggested"), (1.01, "act")]
    for card in cards.values():
        assert card["band"] == next(band for most, band in bands if card["confidence"] < most)
        assert card["band"] != "discard"


@pytest.mark.long
def test_confidence_follows_decisions(trusted: World) -> None:
    """2.5, 8.6: What you always approved is above 0.9; what you never decided on is as likely as anything new."""
    trusted.decide("hunt_flakes", DecisionSignal.DISMISSED, 20)
    trusted.decide("report_branches", DecisionSignal.APPROVED, 1)
    add_conflicting_branches(trusted.repository)
    confidences = {card["kind"]: card["confidence"] for card in trusted.predict()}
    assert confidences["report_branches"] > 0.9
    assert confidences["forecast_conflicts"] == pytest.approx(0.5, abs=0.1), "60 of 120 were approved"


def test_cold_start(world: World) -> None:
    """2.3, 2.6: On the first day cards come from what the repository shows, all at 0.4, and nothing runs by itself."""
    add_conflicting_branches(world.repository)
    cards = world.predict()
    assert cards
    assert {(card["source"], card["confidence"]) for card in cards} == {("template", 0.4)}
    assert "cart.py" in cards[0]["reasoning"], "it says what it saw here"
    phase = world.say("status")["phase"]
    assert (phase["number"], phase["decisions"]) == (0, 0)
    assert "nothing runs by itself in phase 0" in find_verdict(cards[0], "gate")[1]


def test_predictor_hook(world: World) -> None:
    """2.8: Lines that other programs append to predictions.jsonl become cards; a bad line is named and harms none."""
    line = {
        "prediction": "Write the release notes",
        "confidence": 0.8,
        "channel": "chronicle-hub",
        "reasoning": "due",
    }
    (world.home.data / "predictions.jsonl").write_text(json.dumps(line) + "\n{\n")
    report = world.say("predict")
    (card,) = [card for card in report["predictions"] if card["source"] == "predictor-hook"]
    assert (card["prompt"], card["targetChannel"], card["reasoning"]) == (
        "Write the release notes", "chronicle-hub", "due",
    )  # fmt: skip
    assert any("line 2" in error for error in report["errors"])


@pytest.mark.long
def test_follow_ups(world: World) -> None:
    """2.10: What ran may propose its next step: failing tests lead to a card that runs them again."""
    world.repository.commit("A cart", GREEN)
    assert world.run_flow("run_tests").state is SessionState.SUCCEEDED
    world.repository.commit("Break it", {"cart.txt": "4\n"})
    assert not world.run_flow("run_tests").check.green
    world.run_jobs("state")
    (card,) = [card for card in world.say("cards")["predictions"] if card["source"] == "follow-up"]
    assert (card["kind"], card["flow"], card["status"]) == ("rerun_failing", "run_tests", "pending")


# -- a card


@pytest.mark.long
def test_swiping_cards(world: World) -> None:
    """2.7, 9.2: Right runs a card, left sends it away, up puts it off for 2 h; you may edit it first, and undo."""
    first = world.propose_card("Write a greeting into hello.txt")
    world.server.script(calls("write", path="hello.txt", content="Hi\n"), "I wrote it.")
    session = world.approve(first["id"], edit="Write a short greeting into hello.txt")
    assert "Write a short greeting" in world.last_request.users[0]
    (change,) = world.engine.changes.list()
    world.say("land", id=change.id)
    assert (world.repository.path / "hello.txt").read_text() == "Hi\n"
    world.say("undo", id=session.id)
    assert not (world.repository.path / "hello.txt").exists()
    add_conflicting_branches(world.repository)
    (second, *_) = world.predict()
    world.say("snooze", id=second["id"])
    assert second["id"] not in [card["id"] for card in world.predict()]
    world.advance(hours=2)
    assert second["id"] in [card["id"] for card in world.predict()]
    world.say("dismiss", id=second["id"])
    assert second["kind"] not in [card["kind"] for card in world.predict()], "away for 7 days"
    with pytest.raises(Refusal, match=r"dismissed|already|decided"):
        world.engine.cards.approve(second["id"])


@pytest.mark.long
def test_notifications(world: World) -> None:
    """10.2: Each surface hears of a card in its own way: a banner on the phone, a badge on the watch, glasses not."""
    add_conflicting_branches(world.repository)
    with NotificationServer() as server:
        for surface in ("phone", "watch", "glasses"):
            world.set(f"notify.{surface}.url", f"json://127.0.0.1:{server.port}/{surface}")
        world.engine.notify.catch_up()
        (card, *_) = world.predict()
        world.engine.notify.catch_up()
        world.advance(minutes=6)
        for surface in Surface:
            world.engine.notify.deliver_due(surface)
        posts = {post.path.strip("/"): json.dumps(post.body) for post in server.posts}
    assert set(posts) == {"phone", "watch"}
    assert card["prompt"] in posts["phone"]
    assert '"category": "CROSSPOLL_PREDICTION"' in posts["phone"]
    assert '"actions": ["reject", "snooze"]' in posts["phone"], "without a sandbox it is approved on the screen alone"
    assert '"title": "\\ud83d\\udd2e 1"' in posts["watch"], "a badge is a number"


def test_status_complication(world: World) -> None:
    """10.3: A status bar or a watch shows how many cards wait, and in its long form the first of them."""
    add_conflicting_branches(world.repository)
    cards = world.predict()
    file = StatusBarFile(world.engine)
    file.start()
    file.close()
    document = json.loads(world.home.status_bar_file.read_text())
    assert status_bar(document, "short", world.clock.now()) == f"🔮 {len(cards)}"
    world.advance(minutes=2)
    long = status_bar(document, "long", world.clock.now()) or ""
    assert cards[0]["targetChannel"] in long
    assert long.endswith("2m")


# -- rails


def test_safety_pipeline(world: World) -> None:
    """3.1: Six rails speak on each card before you decide, and again on your decision, of which one row is kept."""
    card = world.propose_card("report_branches")
    assert {row["rail"] for row in card["verdicts"]} == RAILS
    world.approve(card["id"])
    (row,) = world.rows("SELECT * FROM crosspoll_log")
    stored_verdicts = json.loads(row["verdicts"])
    assert [stored["rail"] for stored in stored_verdicts] == [shown["rail"] for shown in card["verdicts"]]
    assert (row["prediction_id"], row["trigger_type"], row["blocked"]) == (card["id"], "manual", 0)
    (permit,) = world.rows("SELECT * FROM permits")
    assert permit["digest"] == row["digest"]
    assert permit["consumed_at"], "nothing runs without a permit, and each is used once"


@pytest.mark.long
def test_rate_limiter(trusted: World) -> None:
    """3.2: Without a person nothing is triggered within 10 min of the last; what you approve runs at once."""
    ask = trusted.serve()
    trusted.predict()
    first = ask("POST", "/api/v1/crosspoll/trigger", targetChannel="koji-core")
    assert first["triggered"] is True, first["message"]
    hint = {"hint": "report_branches", "targetChannel": "koji-core"}
    trusted.advance(minutes=9, seconds=59)
    again = ask("POST", "/api/v1/crosspoll/trigger", **hint)
    assert (again["triggered"], "rate" in again["message"]) == (False, True)
    assert trusted.approve(again["prediction"]["id"]).state is SessionState.SUCCEEDED


@pytest.mark.long
def test_loop_detector(trusted: World) -> None:
    """3.3: Channels that trigger each other in a circle are stopped, and each loop that was stopped is counted."""

    def ask_loop_detector() -> str:
        """The verdict of the loop detector when work of the channel asks for more of the same."""
        trusted.advance(seconds=30)
        work = Assignment("report_branches", CHANNEL, str(trusted.repository.path), "flow", "report_branches")
        trigger = Trigger(
            "pred_loop", TriggerType.FOLLOW_UP, work, "backend_builder", 0.95, 0, DecidedBy.AUTONOMY,
            from_channel=CHANNEL, phase=2, approval_bound=0.9, force=True,
        )  # fmt: skip
        engine = trusted.engine
        ruling = engine.database.write(lambda tx: engine.safety.pipeline.decide(tx, trigger))
        return next(verdict.verdict.value for verdict in ruling.verdicts if verdict.rail == "loop")

    assert ask_loop_detector() == "allow"
    assert ask_loop_detector() == "block", "it would answer itself within 5 min"
    assert trusted.say("status")["crossPollStatus"]["loopDetectionCount"] == 1
    trusted.advance(minutes=6)
    assert ask_loop_detector() == "allow"
    assert trusted.run_flow("report_branches").state is SessionState.SUCCEEDED


@pytest.mark.long
def test_cost_caps(world: World) -> None:
    """3.4: Nothing starts that would pass a cap of the hour, day or month; what was spent is shown beside it."""
    world.work("Write a greeting into hello.txt", "Done.")
    spent = world.say("status")["crossPollStatus"]
    assert 0 < spent["costThisHour"] == spent["costToday"] < spent["costCapPerHour"] == 2.0
    assert world.rows("SELECT * FROM cost_entries")
    for window, default in (("Hour", 2), ("Day", 20), ("Month", 200)):
        world.set(f"crossPollCostCapPer{window}", 0.001)
        card = world.propose_card("Write a farewell into bye.txt")
        assert find_verdict(card, "cost")[0] == "block"
        world.set(f"crossPollCostCapPer{window}", default)
    world.set("crossPollCostCapPerHour", 0.001)
    with pytest.raises(Refusal, match="cost"):
        world.engine.cards.approve(card["id"], without_sandbox=True)
    world.set("crossPollCostCapPerHour", 2)
    world.server.script("Done.")
    assert world.approve(card["id"]).state is SessionState.SUCCEEDED


@pytest.mark.long
def test_content_filter(world: World) -> None:
    """3.5: Destructive commands and payments are blocked, messages to others wait for your word, work passes."""
    verdicts = {
        "rm  -fr /": "block",
        "DROP TABLE customers": "block",
        "buy more credits": "block",
        "email the customers about the delay": "ask",
        "fix the cart": "allow",
    }
    assert {text: find_verdict(world.propose_card(text), "content")[0] for text in verdicts} == verdicts
    world.server.script(calls("exec", command="git push --force origin main"), "I could not push.")
    view = world.approve(world.propose_card("Tidy up")["id"])
    assert "the content filter blocks this" in world.last_request.tool_results[-1]
    assert any("push --force origin main refused" in text for text in world.texts(view))


def test_human_gate(world: World) -> None:
    """3.6: Low confidence, production, a new pair of channels and the first days always wait for a person."""
    world.server.script("Done.")
    card = world.propose_card("Restart the workers of production")
    gate_verdict, reasons = find_verdict(card, "gate")
    assert gate_verdict == "ask"
    for reason in ("confidence 0.40 is below 0.60", "touches production", "NEW", "first days: 0 of 10"):
        assert reason in reasons
    assert card["novel"] is True


def test_pause_after_rejections(world: World) -> None:
    """3.6, 7.1: After three rejections in a row it pauses, and watches again once you resume it."""
    world.set("autonomousModeEnabled", True)
    world.set(f'workspaces."{world.repository.path}".autonomy', "act")
    guesses = [json.dumps({"prediction": f"Try {n}", "confidence": 0.5, "channel": "garden"}) for n in range(3)]
    (world.home.data / "predictions.jsonl").write_text("\n".join(guesses) + "\n")
    for guess in world.predict(channel="garden"):
        world.say("dismiss", id=guess["id"])
    world.run_jobs("state")
    assert world.say("status")["state"] == "PAUSED", "three rejections in a row"
    world.say("resume", word="pause")
    assert world.say("status")["state"] == "WATCHING"


@pytest.mark.long
def test_kill_switch(world: World) -> None:
    """3.7: A stop ends what runs, holds over a restart, and is lifted by its own word alone."""
    card = world.propose_card("Write a greeting into hello.txt")
    world.server.script(calls("exec", command="sleep 60"))
    approved = world.engine.cards.approve(card["id"], without_sandbox=True)
    world.server.wait(1)
    assert approved.session_id in world.say("stop", reason="smoke")["stopped"]
    assert world.engine.sessions.wait(approved.session_id or "", 10).state is SessionState.CANCELLED
    with world.restarted() as engine:
        assert engine.autonomy.state().state is AutonomyState.DISABLED
        with pytest.raises(Refusal):
            world.run_flow("report_branches")
        with pytest.raises(Refusal):
            world.say("resume", word="pause")
        world.say("resume", word="stop")
        assert world.run_flow("report_branches").state is SessionState.SUCCEEDED


# -- acting by itself


@pytest.mark.long
def test_autonomous_states(trusted: World) -> None:
    """2.2, 7.1, 7.4: Thirty silent minutes prime it, a file that you save ends that; without the flag it never does."""

    def state_after(minutes: int) -> str:
        trusted.advance(minutes=minutes)
        trusted.run_jobs("state")
        return str(trusted.say("status")["state"])

    assert state_after(9) == "WATCHING", "and twenty before"
    assert state_after(2) == "PRIMING"
    saved = trusted.repository.write("readme.md", "# Our shop\n")
    stamp = trusted.clock.now().timestamp()
    os.utime(saved, (stamp, stamp))
    assert state_after(5) == "WATCHING"
    trusted.set("autonomousModeEnabled", False)
    assert state_after(60) == "WATCHING"
    trusted.set("crossPollEnabled", False)
    assert state_after(0) == "DISABLED"


@pytest.mark.long
def test_autonomous_cycle(trusted: World) -> None:
    """7.2: In your absence it runs what you have always approved, and tells you what it did."""
    trusted.leave_alone()
    (cycle,) = trusted.events("AutonomousCycleFinished")
    card = trusted.engine.cards.get(cycle["acted"])
    view = trusted.engine.sessions.of_card(card.id)
    trusted.engine.sessions.wait(view.id, 20)
    assert (card.kind, card.decided_by) == ("report_branches", DecidedBy.AUTONOMY)
    assert trusted.engine.cards.get(card.id).outcome is Outcome.SUCCEEDED
    assert trusted.say("status")["state"] == "AUTONOMOUS"
    assert trusted.engine.since().approved_by_itself == 1, "told after an absence"


@pytest.mark.long
def test_session_boundaries(trusted: World) -> None:
    """3.8: What runs by itself is marked and in a sandbox; no session writes beyond its folder or sends messages."""
    trusted.leave_alone()
    (running,) = [session for session in trusted.engine.sessions.list() if session.mode == "autonomous"]
    session = trusted.engine.sessions.wait(running.id, 20)
    assert session.id.startswith("auto_")
    assert session.prediction_id
    assert session.sandbox not in ("", "no sandbox")
    trusted.advance(minutes=20)
    trusted.server.script(calls("exec", command="cat ~/.ssh/id_rsa; echo x > ../escaped.txt"), "I looked.")
    trusted.approve(trusted.propose_card("Look around")["id"])
    assert set(trusted.last_request.tools).isdisjoint({"message", "tts", "browser"})
    assert not (Path(session.cwd).parent / "escaped.txt").exists()
    assert "No such file" in trusted.last_request.tool_results[-1] or "denied" in trusted.last_request.tool_results[-1]


@pytest.mark.long
def test_quiet_hours(trusted: World) -> None:
    """7.3: At night and while you asked not to be disturbed cards are made, but nothing runs by itself."""
    trusted.say("dnd", seconds=7200)
    trusted.leave_alone()
    (cycle,) = trusted.events("AutonomousCycleFinished")
    assert cycle["acted"] == ""
    assert "report_branches" in [card.kind for card in trusted.engine.cards.pending()]
    trusted.say("dnd", off=True)
    assert trusted.say("status")["quiet"] is False
    night = trusted.clock.now().replace(hour=23, minute=30)
    trusted.clock.advance(night - trusted.clock.now())
    assert trusted.say("status")["quiet"] is True
    trusted.run_jobs("state", "act")
    assert [cycle["acted"] for cycle in trusted.events("AutonomousCycleFinished")] == ["", ""]


# -- other programs and devices


@pytest.mark.long
def test_gateway(world: World) -> None:
    """10.1: Other programs read cards, decide and trigger over HTTP and JSON-RPC, with a token, and hear of it live."""
    ask = world.serve()
    url = world.engine.gateway.state().url
    assert httpx.get(f"{url}/api/v1/health", trust_env=False).status_code == 401
    assert ask("GET", "/api/v1/health")["crossPollStatus"]["enabled"] is True
    with connect(url.replace("http", "ws") + "/pulse", additional_headers=world.bearer, proxy=None) as pulse:
        pulse.send(json.dumps({"type": "subscribe", "channels": ["crosspoll"]}))
        card = world.propose_card("report_branches")
        types: list[str] = []
        while "prediction.new" not in types:
            message = json.loads(pulse.recv(timeout=10))
            types += [event["type"] for event in message.get("events", [message])]
    predictions = ask("GET", "/api/v1/twin/predict", count=1)
    assert (predictions["count"], predictions["predictions"][0]["id"]) == (1, card["id"])
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "pulse.predictions.latest", "params": {"count": 1}}
    assert ask("POST", "/api/v1/rpc", **rpc)["result"]["predictions"][0]["id"] == card["id"]
    assert ask("POST", f"/api/v1/predictions/{card['id']}/reject")["prediction"]["status"] == "rejected"
    assert ask("PATCH", "/api/v1/crosspoll/config", costCapPerHour=1.5)["config"]["costCapPerHour"] == 1.5


# -- what is learnt of decisions


@pytest.mark.long
def test_feedback_signals(world: World) -> None:
    """8.1: Each thing that you do with a card is a signal of its own weight; a snooze is none."""
    add_conflicting_branches(world.repository)
    (card, *_) = world.predict(shown=True)
    world.say("snooze", id=card["id"], seconds=60)
    assert world.say("status")["decisions"] == []
    world.say("dismiss", id=card["id"])
    world.run_flow("report_branches")
    world.work("Write a greeting into hello.txt", "Done.", edit="Write a farewell into bye.txt")
    rows = world.rows("SELECT signal, chosen, weight FROM decisions ORDER BY id")
    assert sorted((row["signal"], bool(row["chosen"]), row["weight"]) for row in rows) == [
        ("approved", True, 1.0), ("approved", True, 1.0), ("dismissed", False, 1.0), ("original", False, 1.0),
    ]  # fmt: skip


@pytest.mark.long
def test_preference_pairs(world: World) -> None:
    """8.2, 8.3: An approval and a rejection shortly before make a training pair with the situation it was made in."""
    add_conflicting_branches(world.repository)
    (card, *_) = world.predict()
    world.say("dismiss", id=card["id"])
    world.advance(minutes=59)
    world.work("Write a greeting into hello.txt", "Done.")
    (pair,) = world.rows("SELECT * FROM dpo_pairs")
    assert pair["chosen"] == "Write a greeting into hello.txt → koji-core"
    assert pair["rejected"] == f"{card['prompt']} → {card['targetChannel']}"
    with pytest.raises(Refusal, match="50"):
        world.say("export", what="dpo")
    world.decide_pairs(49)
    exported = Path(world.say("export", what="dpo")["file"]).read_text().splitlines()
    assert len(exported) == 50
    assert all(json.loads(line)["prompt"].strip() for line in exported), "without its situation a pair teaches nothing"
    assert set(json.loads(exported[0])["metadata"]) == {"timestamp", "confidence_chosen", "confidence_rejected"}


@pytest.mark.long
def test_twin_training(closed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """8.3, 8.4: From 50 pairs on a model is trained on them, and takes the old one's place without a restart."""
    monkeypatch.setenv("CLAWPY_SCHOOL_API_KEY", "sk-school-0123456789abcdefghij")
    with TrainingServer() as training:
        closed.configure(twinModelEnabled=True, twinModelId="openai:twin-1")
        closed.append_config(
            f'[providers.school]\nkind = "openai"\nbaseUrl = "{training.url}/v1"\n'
            '[training]\nprovider = "school"\napi = "openai"\nbaseModel = "base"\n'
        )
        answer = {"prompt": "research", "channel": "research", "confidence": 0.9, "reasoning": "as ever"}
        closed.server.answer = lambda request: Reply(text=json.dumps(answer) if request.model == "twin-2" else "?")
        with closed.opened() as engine:
            closed.decide_pairs(49)
            assert "1 more pair" in closed.say("train")["next"]
            closed.decide_pairs(11)
            assert closed.say("train", action="start")["runs"][0]["method"] == "dpo"
            assert len(training.files[0].lines) >= 40, "the others are kept to compare both models"
            training.jobs[0].finish("twin-2", dollars=None)
            closed.say("train")
            engine.settings.set("providers.school.baseUrl", closed.server.openai)
            assert closed.say("train")["runs"][0]["state"] == "adopted"
            assert engine.settings.current.twin_model_id == "school:twin-2"


@pytest.mark.long
def test_metrics(world: World) -> None:
    """8.5: How many cards you took, how often, at which confidence, and how well that came true, over any days."""
    add_conflicting_branches(world.repository)
    (card, *waiting) = world.predict(shown=True)
    world.say("dismiss", id=card["id"])
    world.run_flow("report_branches")
    metrics = world.say("metrics", days=7)
    assert (metrics["period"], metrics["rejected"], metrics["waiting"]) == ("last_7_days", 1, len(waiting))
    assert metrics["approvalRate"] == 0.0, "your own prompts are none of its predictions"
    assert metrics["ownPrompts"] == 1
    assert [bin["bucket"] for bin in metrics["calibration"]][:2] == ["0.3-0.4", "0.4-0.5"]
    assert {"autoSuccessRate", "avgApprovedConfidence", "trendDirection", "lastDpoTraining"} <= set(metrics)
    assert world.serve()("GET", "/api/v1/crosspoll/metrics")["rejected"] == 1, "the gateway says the same"
