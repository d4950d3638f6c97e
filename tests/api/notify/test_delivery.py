"""Real HTTP to servers that speak ntfy's and Discord's protocol, by Apprise."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from apprise.plugins.discord import NotifyDiscord

from engine.api.notify import delivery
from engine.api.notify.addresses import Address
from engine.api.notify.content import NotificationContent
from engine.api.notify.delivery import Button, Failure, deliver, describe_failure
from engine.api.notify.forms import Form, NotificationKind
from engine.api.notify.notes import Note, make_note
from engine.clock import FakeClock
from engine.config.notify import Surface
from engine.events import EventBus, StateChanged
from engine.storage.database import Database
from tests.api.notify.post_office import PostOffice
from tests.api.notify.world import World

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
CARD = NotificationContent(
    NotificationKind.NEW_HIGH, NOW, "Run tests on <changed> *modules* @everyone", "pred_a", "koji-core", 0.72, True
)


@pytest.fixture
def office() -> Iterator[PostOffice]:
    with PostOffice() as office:
        yield office


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What reaches the root's handlers, and the engine's log."""
    kept = io.StringIO()
    handler = logging.StreamHandler(kept)
    loggers = [logging.getLogger(), logging.getLogger("engine")]
    for logger in loggers:
        logger.addHandler(handler)
    yield kept
    for logger in loggers:
        logger.removeHandler(handler)


def said(form: Form, content: NotificationContent = CARD) -> Note:
    return make_note(content, form, pending=3, now=NOW + timedelta(minutes=2))


def send(url: str, one: Note, surface: Surface = Surface.PHONE, **buttons: Button) -> Failure | None:
    return deliver(Address(surface, url, "settings"), one, buttons)


def test_a_card_on_ntfy_with_its_buttons(office: PostOffice) -> None:
    base = "https://here.example/api/v1/predictions/pred_a"
    verbs = {"approve": "confirm", "reject": "reject", "snooze": "snooze"}
    buttons = {name: Button(f"{base}/{verb}", f"pass_{name}") for name, verb in verbs.items()}
    assert send(office.ntfy, said(Form.CARD), **buttons) is None
    [post] = office.posts
    assert post.body == {
        "topic": "clawpy",
        "title": "🔮 Cross-Pollination",
        "message": "koji-core • 72% confidence\nRun tests on <changed> *modules* @everyone",
    }
    assert "x-priority" not in post.headers
    assert "x-icon" not in post.headers
    actions = json.loads(post.headers["x-actions"])
    assert [(action["label"], action["url"], action["headers"]["Authorization"]) for action in actions] == [
        ("Approve", f"{base}/confirm", "Bearer pass_approve"),
        ("Dismiss", f"{base}/reject", "Bearer pass_reject"),
        ("Later", f"{base}/snooze", "Bearer pass_snooze"),
    ]
    assert {(action["action"], action["method"], action["clear"]) for action in actions} == {("http", "POST", True)}


def test_glasses_are_asked_only_where_an_answer_is_heard(office: PostOffice) -> None:
    """A voice of this machine hears nothing; a program that takes the push and can reach the gateway does."""
    one = said(Form.SPOKEN)
    assert send(office.json, one, Surface.GLASSES) is None
    skip = {"reject": Button("https://here.example/api/v1/predictions/pred_a/reject", "pass_reject")}
    assert send(office.json, one, Surface.GLASSES, **skip) is None
    alone, heard = [post.body for post in office.posts]
    assert alone["aps"]["alert"]["body"].endswith("Confidence 72 percent.")
    assert "answers" not in alone
    assert heard["aps"]["alert"]["body"].endswith("Confidence 72 percent. Say approve or skip.")
    assert heard["answers"]["reject"] == {
        "url": "https://here.example/api/v1/predictions/pred_a/reject", "authorization": "Bearer pass_reject",
    }  # fmt: skip


@pytest.mark.parametrize(("form", "key"), [(Form.EMBED, "embeds"), (Form.RESULT, "embeds"), (Form.TICK, "content")])
def test_discord_shows_text_as_it_is_and_nobody_is_called(
    office: PostOffice, monkeypatch: pytest.MonkeyPatch, form: Form, key: str
) -> None:
    monkeypatch.setattr(NotifyDiscord, "notify_url", f"http://127.0.0.1:{office.port}/api/webhooks")
    assert send("discord://4242424242/abcdefghijklmnop", said(form), Surface.DISCORD) is None
    [post] = office.posts
    assert post.path == "/api/webhooks/4242424242/abcdefghijklmnop"
    shown = post.body[key]
    text = shown if isinstance(shown, str) else shown[0]["description"]
    assert r"Run tests on <changed\> \*modules\* @​everyone" in text
    assert "avatar_url" not in post.body
    assert "allow_mentions" not in json.dumps(post.body)


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (401, Failure("the server answers 401", lasting=True)),
        (404, Failure("the server answers 404", lasting=True)),
        (429, Failure("the server answers 429")),
        (503, Failure("the server answers 503")),
    ],
)
def test_what_a_server_says_no_with(office: PostOffice, status: int, failure: Failure) -> None:
    office.status = status
    assert send(office.ntfy, said(Form.BANNER)) == failure


def test_a_server_that_never_answers(office: PostOffice, monkeypatch: pytest.MonkeyPatch) -> None:
    office.open.clear()
    monkeypatch.setattr(delivery, "TIMEOUT_S", 0.05)
    assert send(office.ntfy, said(Form.BANNER)) == Failure("it did not accept the notification within 0.05 s")


@pytest.mark.parametrize("lines", [[], ["something else entirely at ntfy://user:pass@host"]])
def test_what_a_library_says_is_never_repeated(lines: list[str]) -> None:
    assert describe_failure(lines) == Failure("it did not accept the notification")


def test_no_part_of_an_address_is_written_anywhere(
    office: PostOffice, database: Database, clock: FakeClock, bus: EventBus, logged: io.StringIO
) -> None:
    """SPEC 11.1: what failed is told, in the database, in the queue and in the log, and the token is in none of it."""
    office.status = 401
    world = World(database, clock, bus, real=True)
    world.environment["CLAWPY_NOTIFY_PHONE_URL"] = f"ntfy://tk_verysecrettoken@127.0.0.1:{office.port}/secrettopic"
    world.happen(StateChanged(before="WATCHING", after="PAUSED", cause="cost cap reached"))
    world.deliver()
    assert office.posts[0].headers["authorization"] == "Bearer tk_verysecrettoken"
    told = "".join(one.title for one in world.router.waiting()) + logged.getvalue()
    kept = b"".join(file.read_bytes() for file in Path(database.path).parent.glob("clawpy.db*"))
    assert "the server answers 401" in told
    for secret in ("verysecrettoken", "secrettopic"):
        assert secret not in told
        assert secret.encode() not in kept
        assert secret not in repr(world.router.addresses.of(Surface.PHONE))


def program(folder: Path, name: str) -> Path:
    """A program that keeps the arguments it was called with."""
    file, kept = folder / name, folder / f"{name}.said"
    file.write_text(f'#!{sys.executable}\nimport sys\nopen({str(kept)!r}, "w").write("\\0".join(sys.argv[1:]))\n')
    file.chmod(0o755)
    return kept


@pytest.mark.skipif(sys.platform == "darwin", reason="there it is osascript")
def test_this_desktop_and_this_voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    shown, heard = program(tmp_path, "notify-send"), program(tmp_path, "spd-say")
    assert send("desktop://", said(Form.CARD), Surface.DESKTOP) is None
    assert shown.read_text().split("\0") == [
        "--app-name=clawpy", "--urgency=normal", "--", "🔮 Cross-Pollination",
        "koji-core • 72% confidence\nRun tests on &lt;changed&gt; *modules* @everyone",
    ]  # fmt: skip
    assert send("speak://", said(Form.SPOKEN, replace(CARD, words="--help me")), Surface.GLASSES) is None
    assert heard.read_text().split("\0")[2].startswith("Cross-pollination suggestion: --help me. Confidence 72")


def test_a_machine_without_a_desktop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "platform", "linux")
    found = send("desktop://", said(Form.CARD), Surface.DESKTOP)
    assert found is not None
    assert found.lasting
