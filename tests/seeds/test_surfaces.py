"""Where cards are shown outside of the console (section 10 of docs/SPEC.md).

A test is named after the part that it shows. What must hold is the first line of its docstring.
"""

import json

import pytest

from clawpy_console.cli.status_bar import format_file_line as status_bar
from engine.api.status_bar_file import StatusBarFile
from engine.config.external_sections import Surface
from tests.seeds.operator_world import OperatorWorld
from tests.support.notification_server import NotificationServer
from tests.support.repository import add_conflicting_branches


@pytest.mark.long
def test_notifications(world: OperatorWorld):
    """10.2: Each surface hears of a card in its own way: a banner on the phone, a badge on the watch, glasses not."""
    add_conflicting_branches(world.repository)
    with NotificationServer() as server:
        for surface in ("phone", "watch", "glasses"):
            world.change_setting(f"notify.{surface}.url", f"json://127.0.0.1:{server.port}/{surface}")
        world.engine.notify.catch_up()
        (card, *_) = world.predict()
        world.engine.notify.catch_up()
        world.advance(minutes=6)
        for surface in Surface:
            world.engine.notify.senders[surface].deliver_due()
        posts = {post.path.strip("/"): json.dumps(post.body) for post in server.posts}
    assert set(posts) == {"phone", "watch"}
    assert card["prompt"] in posts["phone"]
    assert '"category": "CROSSPOLL_PREDICTION"' in posts["phone"]
    assert '"actions": ["reject", "snooze"]' in posts["phone"], "without a sandbox it is approved on the screen alone"
    assert '"title": "\\ud83d\\udd2e 1"' in posts["watch"], "a badge is a number"


def test_status_complication(world: OperatorWorld):
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
