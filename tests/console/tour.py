"""The moving picture of the README: the demo, driven by keys, a picture after each step, as one SVG that plays itself.

python -m tests.console.tour docs/tour.svg
"""

import asyncio
import re
import sys
from pathlib import Path

from clawpy_console.app import ConsoleApp
from clawpy_console.cli.demo import temporary_home
from clawpy_console.cli.main import open_demo
from engine.home import Home
from tests.console.driving import until_shown

SIZE = (120, 34)
SECONDS_PER_PICTURE = 3.0
"""How long each picture stands."""

STEPS = (
    ("escape", "CARDS  "),
    ("j", "CARDS  "),
    ("enter", "SIGNALS"),
    ("escape", "CARDS  "),
    ("right", "Started"),
    ("2", "FINISHED"),
    ("f12", "Press R to resume"),
)
"""The keys to press, each with a text that is on the screen when it has done its work."""


async def draw_pictures(home: Home, workspace: Path) -> list[str]:
    """One SVG for each step, made with the real engine."""
    app = ConsoleApp(lambda: open_demo(home, workspaces=[workspace]), home, [str(workspace)], demo=True)
    async with app.run_test(size=SIZE) as pilot:
        await until_shown(pilot, "CARDS  1 of")
        pictures = []
        for key, text in STEPS:
            await pilot.press(key)
            await until_shown(pilot, text)
            await pilot.wait_for_animation()  # the card has flown away
            pictures.append(app.export_screenshot(title="clawpy --demo"))
    return pictures


def make_film(pictures: list[str]) -> str:
    """`pictures` as one SVG that shows each for `SECONDS_PER_PICTURE` and begins again."""
    whole = SECONDS_PER_PICTURE * len(pictures)
    share = 100 / len(pictures)
    opening = re.match(r"<svg[^>]*>", pictures[0])
    style = (
        f".frame {{ visibility: hidden; animation: shown {whole}s step-end infinite; }}\n"
        f"@keyframes shown {{ 0% {{ visibility: visible; }} {share:.3f}% {{ visibility: hidden; }} }}\n"
    )
    style += "".join(f".frame-{n} {{ animation-delay: {n * SECONDS_PER_PICTURE}s; }}\n" for n in range(len(pictures)))
    frames = "\n".join(f'<g class="frame frame-{n}">{picture}</g>' for n, picture in enumerate(pictures))
    return f"{opening.group()}\n<style>\n{style}</style>\n{frames}\n</svg>\n"


def main():
    """Write the film to the file named on the command line."""
    with temporary_home() as (folder, workspace):
        home = Home.locate(folder)
        Path(sys.argv[1]).write_text(make_film(asyncio.run(draw_pictures(home, workspace))), encoding="utf-8")


if __name__ == "__main__":
    main()
