"""Steps of tests of the safety screen."""

import dataclasses

from textual.pilot import Pilot

from tests.console.driving import is_reading, until_loaded
from tests.console.stand_in_data import read_burns
from tests.console.stories import Until, carry_out, press

OPEN = (press("6"), Until("the rails", lambda app: app.state.rails and not is_reading(app)))

UNUSED = tuple(
    dataclasses.replace(burn, spent=0, reserved=0, buckets=(0,) * len(burn.buckets)) for burn in read_burns()
)
"""The windows of costs, in which nothing was spent."""


async def open_safety(pilot: Pilot):
    await until_loaded(pilot)
    await carry_out(pilot, *OPEN)
