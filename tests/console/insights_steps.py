"""Steps of tests of the insights screen."""

from textual.pilot import Pilot

from tests.console.driving import until, until_loaded


async def open_insights(pilot: Pilot, *keys: str):
    """Open the insights screen, and press keys once the figures were read."""
    await until_loaded(pilot)
    await pilot.press("7")
    await until(pilot, lambda: getattr(pilot.app.screen, "_insights", None) is not None, "for the figures")
    await pilot.press(*keys)
    await pilot.pause()
