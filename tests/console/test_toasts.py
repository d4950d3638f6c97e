"""Toasts and messages: they cover nothing, keep their beginning, and are removed after a while (SPEC 9.3)."""

import pytest

from clawpy_console.app import ConsoleApp
from tests.console.driving import read_screen, running
from tests.console.snapshots import wait_for_workers
from tests.console.stand_in import StandIn
from tests.console.stories import Until, carry_out, hides, play, press, sees


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (100, 40), (159, 50), (160, 50)])
@pytest.mark.parametrize("keys", [(), ("2",), ("2", "f"), *((digit,) for digit in "34567")])
async def test_toasts_cover_nothing(console: ConsoleApp, engine: StandIn, keys: tuple[str, ...], size: tuple[int, int]):
    engine.with_agent()
    async with running(console, *keys, size=size, notifications=True) as pilot:
        await wait_for_workers(pilot)  # a toast about a reading that failed would take their place
        console.show_toast("something is wrong, and how to fix it")
        console.show_toast(f"something else is wrong, {'in more words than fit one line of a terminal, ' * 2}thus")
        await carry_out(pilot, sees("something is wrong, and how to fix it", "thus"))
        visible_regions = {
            widget: region.intersection(clip)
            for widget, (region, clip) in console.screen._compositor.visible_widgets.items()
            if widget.visible and not widget.children and region.intersection(clip).area
        }
        regions = [visible_regions.pop(toast) for toast in console.screen.query("Toast") if toast in visible_regions]
        assert len(regions) >= 2  # a slow machine has more to say
        assert not [item for item, region in visible_regions.items() for toast in regions if region.overlaps(toast)]


@pytest.mark.long
@pytest.mark.parametrize("name", ["cards", "work"])
async def test_long_toasts_on_a_low_terminal_keep_their_beginning_and_all_messages_can_be_read_in_full(
    console: ConsoleApp, name: str
):
    console.NOTIFICATION_TIMEOUT = 60
    async with running(console, size=(80, 24), notifications=True) as pilot:

        def sees_on_screen(*texts: str) -> Until:
            return Until(f"{texts}", lambda app: all(text in read_screen(app) for text in texts))

        await carry_out(pilot, *([] if name == "cards" else [press("2")]))
        console.show_toast(f"first fault: {'and more of it ' * 25}end_of_first")
        await carry_out(pilot, sees_on_screen("first fault: and"))
        console.show_toast(f"second fault: {'and more of it ' * 25}end_of_second")
        await carry_out(pilot, sees_on_screen("first fault: and", "second fault: and"))
        await carry_out(pilot, press("M"), sees_on_screen("Messages", "end_of_second", "close"))
        await carry_out(pilot, press("end"), sees_on_screen("end_of_first"))


async def test_a_message_is_removed_after_a_while(console: ConsoleApp, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("clawpy_console.screens.mission_panes.MESSAGE_S", 0.3)
    await play(console, press("escape up"), sees("Snoozed"), hides("Snoozed"))
