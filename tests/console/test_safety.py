"""The safety screen: rails, blocked work, switches, holds (SPEC 3, 9.1)."""

from datetime import timedelta

import pytest

from tests.console.driving import is_reading
from tests.console.stand_in_data import BLOG, NOW, SHOP
from tests.console.stories import (
    CLOSED,
    Given,
    Until,
    called,
    hides,
    make_story_test,
    never_called,
    press,
    refused,
    sees,
    type_text,
)

HOLDS = Given(
    lambda engine: (
        engine.safety.kill_switch.hold("month", "cost: the month's cap"),
        engine.safety.kill_switch.hold("pause", "3 dismissals in a row", NOW + timedelta(minutes=63)),
    )
)
RAILS_READ = Until("the rails", lambda app: app.state.rails and not is_reading(app))
SECOND_IS_PAUSE = Until("the pause", lambda app: [hold.word for hold in app.holds] == ["pause"])
STORIES = {
    "allow once says what it lifts and asks for a second key": (
        press("tab a"),
        sees("Allow this once?", "content (destructive.rm)"),
        press("a y enter"),
        CLOSED,
        never_called("allow_once"),
        press("a X"),
        called("allow_once", "pred_000000000002"),
        sees("Allowed once. Approve the card"),
        press("a"),
        CLOSED,
    ),
    "only a block of the content filter can be allowed": (press("tab down a"), CLOSED, hides("a allow once")),
    "a refusal is said": (
        refused("allow_once", "the content filter did not block it"),
        press("tab a X"),
        sees("did not block it"),
    ),
    "the list is filtered as one types, and escape ends that": (
        press("slash"),
        type_text("quiet"),
        sees("1 of 3", "Draft the change log"),
        press("enter slash escape"),
        sees("rm -rf /"),
    ),
    "the gravest hold ends first, a stop and a month stop after a question": (
        HOLDS,
        sees("■ month stop  Press R to resume", "■ pause       Press R to resume, over in 1h 03m"),
        press("R R enter"),
        never_called("resume"),
        press("R y"),
        called("resume", "month"),
        SECOND_IS_PAUSE,
        press("R"),
        called("resume", "pause"),
    ),
    "do not disturb begins and ends with one key": (
        sees("quiet hours 23:00–08:00"),
        press("d"),
        sees("do not disturb until 16:12"),
        press("d"),
        called("dnd", None),
        sees("quiet hours 23:00–08:00"),
    ),
    "acting by itself is explained before it is turned on": (
        press("tab tab down enter"),
        sees("may start work without asking"),
        press("enter enter escape"),
        never_called("set"),
        press("enter y"),
        called("set", "autonomousModeEnabled", True),
        press("up enter"),
        called("set", "crossPollEnabled", False),
    ),
    "the autonomy of a workspace is chosen": (
        press("tab tab"),
        press("down", times=4),
        press("enter"),
        sees("What may the engine do in shop?"),
        press("c enter a"),
        never_called("set"),
        press("A"),
        called("set", f'workspaces."{SHOP}".autonomy', "act"),
        press("down enter o"),
        called("set", f'workspaces."{BLOG}".autonomy', "off"),
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES, press("6"), RAILS_READ))
