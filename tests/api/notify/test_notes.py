"""The form and the words of a notification (SPEC 10.2)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from engine.api.notify.addresses import is_switched_on
from engine.api.notify.notes import (
    CARD_ACTIONS,
    FORMS,
    MAX_CHARS,
    MAX_DIGEST_LINES,
    Form,
    Note,
    NotificationContent,
    NotificationKind,
    make_digest,
    make_note,
)
from engine.config.external_sections import Surface
from engine.config.settings import Settings
from engine.model import Tier
from tests.support import MONDAY_MORNING as NOW
from tests.support import read_table

# The table of SPEC 10.2: seven kinds of event, six surfaces


TABLE = """
new card, medium | banner + card | badge          | –      | –
new card, high   | banner + card | haptic + badge | spoken | embed
auto-executed    | silent        | refresh        | –      | ✅
completed        | banner        | haptic         | spoken | result
failed           | banner        | haptic         | –      | ❌
cost near cap    | banner        | –              | –      | –
paused           | banner        | ⏸              | –      | status
"""

COLUMN_OF_SURFACE = {"phone": 1, "web": 1, "desktop": 1, "watch": 2, "glasses": 3, "discord": 4}
ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]
CELLS = [(row[0], surface, row[column]) for row in ROWS for surface, column in COLUMN_OF_SURFACE.items()]


def make_test_note(content: NotificationContent, form: Form, pending: int = 1) -> Note:
    return make_note(content, form, pending=pending, now=NOW, secrets=["hunter2hunter2"])


@pytest.mark.parametrize("kind, surface, form", CELLS)
def test_each_entry_has_its_form_on_each_surface(kind: str, surface: str, form: str):
    note = FORMS[NotificationKind(kind)].get(Surface(surface))
    assert note is (None if form == "–" else Form(form))


@pytest.mark.parametrize("surface", list(Surface))
def test_settings_switch_surfaces_on_and_off(surface: Surface):
    """SPEC 7.4: pushes and complications unless switched off, glasses only when switched on."""
    assert is_switched_on(surface, Settings()) is (surface is not Surface.GLASSES)
    assert is_switched_on(surface, Settings(glasses_alerts_enabled=True))
    off = Settings(push_notifications_enabled=False)
    assert is_switched_on(surface, off) is (surface is Surface.WATCH)
    assert is_switched_on(surface, Settings(watch_complications_enabled=False)) is (
        surface not in (Surface.WATCH, Surface.GLASSES)
    )


CARD = NotificationContent(
    NotificationKind.NEW_HIGH, NOW - timedelta(minutes=2), "Run tests on recently changed modules", "pred_abc123",
    "koji-core", 0.72, has_stated_confidence=True, tier=Tier.CHECK,
)  # fmt: skip
NEW = replace(CARD, has_stated_confidence=False)
LOST = replace(CARD, tier=Tier.AT_RISK)
READ_IT = "Say skip, or read it before you approve."
DONE = NotificationContent(NotificationKind.COMPLETED, NOW, "Done: 41 passed", "pred_abc123", "koji-core")


def test_the_payload_of_a_phone_is_the_one_of_the_spec():
    assert make_test_note(CARD, Form.CARD).payload == {
        "aps": {
            "alert": {
                "title": "🔮 Cross-Pollination",
                "subtitle": "koji-core • 72% confidence",
                "body": "Run tests on recently changed modules",
            },
            "sound": "prediction.caf",
            "badge": 1,
            "category": "CROSSPOLL_PREDICTION",
            "thread-id": "crosspoll",
        },
        "predictionId": "pred_abc123",
        "targetChannel": "koji-core",
        "confidence": 0.72,
        "actions": ["approve", "reject", "snooze"],
    }


@pytest.mark.parametrize("text", ["run " * MAX_CHARS, "run it with hunter2hunter2"], ids=["long", "a secret"])
def test_a_prompt_that_is_cut_has_no_approve_button(text: str):
    """The end of a long prompt, or what was cut out of it, is read before it is approved."""
    assert make_test_note(CARD, Form.CARD).actions == CARD_ACTIONS
    assert make_test_note(replace(CARD, text=text), Form.CARD).actions == ("reject", "snooze")
    assert make_test_note(replace(CARD, text=text), Form.SPOKEN).question == READ_IT


CONTENTS = {"card": CARD, "new": NEW, "lost": LOST, "done": DONE}


@pytest.mark.parametrize("row", read_table(__file__)["notes"], ids=lambda row: row["form"])
def test_each_form_has_its_title_and_body(row: dict[str, str]):
    content = replace(DONE, text=row["words"]) if "words" in row else CONTENTS[row["content"]]
    note = make_test_note(content, Form(row["form"]), pending=3)
    assert (note.title, note.body) == (row["title"], row["body"])


@pytest.mark.parametrize("form", list(Form))
def test_no_form_has_a_secret_or_an_escape_sequence(form: Form):
    words = "deploy with sk-abcdefghijklmnopqrstuvwx and hunter2hunter2 \x1b[31mnow\x07"
    note = make_test_note(replace(CARD, text=words), form)
    assert "sk-abc" not in note.text
    assert "hunter2" not in note.text
    assert "\x1b" not in note.text
    assert "\x07" not in note.text


def test_a_digest_has_a_line_for_each_and_counts_the_rest():
    note = make_digest([make_test_note(replace(CARD, text=f"card {n}"), Form.CARD, pending=12) for n in range(12)])
    lines = note.body.splitlines()
    assert len(lines) == MAX_DIGEST_LINES
    assert lines[0] == "• koji-core • 72% confidence: card 0"
    assert lines[-1] == "• and 3 more"
    assert note.subtitle == "12 notifications"
    assert note.badge == 12
    assert note.actions == ()
    badge = make_test_note(CARD, Form.BADGE)
    assert make_digest([replace(badge, haptic="failure"), badge]).haptic == "failure"
