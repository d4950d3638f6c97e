"""Keys in one table, remapped by settings; themes as files, every colour parsed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpy_console import appearance
from clawpy_console.app import ConsoleApp
from clawpy_console.dialogs.help import Help
from clawpy_console.keys import ACTIONS, BY_ID, check_keymap, shown_key
from clawpy_console.palette import commands
from engine.home import Home
from engine.model import Refusal
from tests.console.conftest import live, running, screen_text, until, wait_for_text
from tests.console.stand_in import StandIn

OWN = """
dark = true
[colors]
background = "#000000"
surface = "#111111"
line = "#222222"
text = "white"
grey = "#999"
faint = "#777777"
accent = "#ff00ff"
wants = "yellow"
wrong = "red"
good = "green"
lit = "#333333"
"""


def test_the_keys_as_shipped_do_not_clash() -> None:
    good, refusals = check_keymap({action.id: action.keys for action in ACTIONS})
    assert refusals == []
    assert set(good) == set(BY_ID)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"stack.aprove": "x"}, "stack.aprove"),
        ({"nonsense": "x"}, "nonsense"),
        ({"stack.approve": "ctrl+klick"}, "ctrl+klick"),
        ({"stack.approve": ""}, "names no key"),
        ({"stack.approve": "u"}, "stack.undo"),
        ({"work.land": "b"}, "work.branch"),
        ({"stack.undo": "6"}, "app.safety"),
    ],
)
def test_what_cannot_be_used_is_named(keys: dict[str, str], named: str) -> None:
    good, (refusal,) = check_keymap(keys)
    assert good == {}
    assert named in str(refusal)


def test_two_keys_may_be_swapped() -> None:
    assert check_keymap({"work.land": "b", "work.branch": "L"}) == ({"work.land": "b", "work.branch": "L"}, [])


def test_f12_stops_whatever_the_keymap_says() -> None:
    assert check_keymap({"app.stop": "f9"})[0] == {"app.stop": "f9,f12"}


@pytest.mark.long
@given(st.dictionaries(st.sampled_from(sorted(BY_ID)) | st.text(max_size=8), st.text(max_size=12), max_size=6))
def test_no_keymap_makes_it_fail(keys: dict[str, str]) -> None:
    good, refusals = check_keymap(keys)
    assert len(good) + len({str(refusal) for refusal in refusals}) >= min(1, len(keys))


@pytest.mark.long
async def test_the_help_begins_with_the_keys_of_the_screen_and_finds_others(console: ConsoleApp) -> None:
    async with running(console, "6", "question_mark") as pilot:
        await until(pilot, lambda: isinstance(console.screen, Help))
        await wait_for_text(pilot, "do not disturb for 2 hours; again")
        text = screen_text(console)
        assert text.index("In this pane, now") < text.index("one up") < text.index("Everywhere")
        await pilot.press(*"undo a landing")
        await wait_for_text(pilot, "undo a landing")
        assert "do not disturb for 2 hours; again" not in screen_text(console)
        assert "esc clear" in screen_text(console)
        await pilot.press("escape", "d")
        await wait_for_text(pilot, "The key d")
        text = screen_text(console)
        assert text.index("The key d") < text.index("do not disturb for 2 hours; again")
        await pilot.press("escape")
        assert "esc close" in screen_text(console)
        await wait_for_text(pilot, "do not disturb for 2 hours; again")
        await pilot.press(*["pagedown"] * 9)
        await wait_for_text(pilot, "close; the text is kept")
        await pilot.press("question_mark")
        assert len(console.screen_stack) == 1


def test_every_key_has_a_sign_that_can_be_printed() -> None:
    assert not [action.id for action in ACTIONS if not shown_key(action.id, {}).isprintable()]


@pytest.mark.long
@pytest.mark.parametrize("screen", ["1", "2", "4", "5", "6", "7"])
async def test_y_copies_the_id_of_what_is_in_focus_on_every_screen(console: ConsoleApp, screen: str) -> None:
    async with running(console, screen, notifications=True) as pilot:
        await until(pilot, lambda: console.screen.ready and console.screen.copy_text())
        await pilot.press("y")
        await until(pilot, lambda: console.clipboard == console.screen.copy_text())
        await wait_for_text(pilot, "copied")


async def test_the_palette_has_each_action_once_and_copies_the_id_too(console: ConsoleApp) -> None:
    async with running(console) as pilot:
        offered = list(commands(console, console.screen))
        titles = [item.title for item in offered]
        assert len(titles) == len(set(titles))
        next(item for item in offered if item.title.startswith("Copy the id")).callback()
        await until(pilot, lambda: console.clipboard == console.screen.copy_text())


@pytest.mark.long
async def test_q_leaves(console: ConsoleApp, engine: StandIn) -> None:
    engine.sessions.all = [session for session in engine.sessions.all if session.state.over]
    async with running(console, size=(80, 24)) as pilot:
        assert screen_text(console).splitlines()[-1].rstrip().endswith("? keys  q quit")
        await pilot.press("n")
        await pilot.press("q")  # while one types it is a letter
        assert console.is_running
        await pilot.press("escape", "q")
        await until(pilot, lambda: not console.is_running)


async def test_ctrl_c_ends_nothing_and_names_the_key_that_leaves(console: ConsoleApp, engine: StandIn) -> None:
    engine.settings.current.keys = {"app.quit_typing": "f10"}
    async with running(console, "ctrl+c", size=(80, 24), notifications=True) as pilot:
        await wait_for_text(pilot, "F10 quits, F12 stops everything")
        assert console.is_running


@pytest.mark.long
async def test_remapped_keys_work_and_are_shown(console: ConsoleApp, engine: StandIn) -> None:
    engine.settings.current.keys = {"stack.dismiss": "x", "stack.nope": "y"}
    async with running(console, notifications=True) as pilot:
        await wait_for_text(pilot, "stack.nope")  # the bad one is named
        await pilot.press("left")
        assert not any(call[0] == "dismiss" for call in engine.noted)
        await pilot.press("x")
        await until(pilot, lambda: any(call[0] == "dismiss" for call in engine.noted))
        assert "x dismiss" in screen_text(console)


def test_all_shipped_themes_are_good() -> None:
    loaded = list(appearance.load_themes(Path("/nowhere")))
    assert [theme.name for theme in loaded] == ["clawpy-ansi", "clawpy-dark", "clawpy-high-contrast", "clawpy-light"]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('accent = "#ff00ff"', 'accent = "#ff00zz"', "colors.accent"),
        ('accent = "#ff00ff"', "accent = 7", "colors.accent"),
        ('accent = "#ff00ff"', "", "colors.accent"),
        ('accent = "#ff00ff"', 'accent = "red"\nglow = "red"', "colors.glow"),
        ("dark = true", 'dark = "yes"', "dark"),
        ("dark = true", "drak = true", "drak"),
        ("[colors]", "[colours]", "colours"),
        ("[colors]", "[colors", "own.toml"),
    ],
)
def test_a_bad_theme_names_file_and_key(tmp_path: Path, old: str, new: str, named: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(OWN.replace(old, new))
    with pytest.raises(Refusal) as refused:
        appearance.load_theme(file)
    assert str(file) in refused.value.message
    assert named in str(refused.value)


def contrast(item: str, other: str) -> float:
    from textual.color import Color

    def luminance(name: str) -> float:
        parts = [
            part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4
            for part in Color.parse(name).normalized
        ]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    bright, dark = sorted((luminance(item), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("name", "least"), [("clawpy-dark", 4.5), ("clawpy-light", 4.5), ("clawpy-high-contrast", 7)])
def test_text_can_be_read(name: str, least: float) -> None:
    import tomllib

    colors = tomllib.loads((appearance.shipped_folder() / f"{name}.toml").read_text())["colors"]
    for key in ("text", "grey", "accent", "wants", "wrong", "good"):
        assert contrast(colors[key], colors["background"]) >= least, key
        assert contrast(colors[key], colors["surface"]) >= least * 0.9, key
    assert contrast(colors["faint"], colors["background"]) >= 3


async def test_the_operators_own_theme_and_a_bad_one_beside_it(home: Home, engine: StandIn) -> None:
    folder = home.config / "themes"
    folder.mkdir(parents=True)
    (folder / "own.toml").write_text(OWN)
    (folder / "torn.toml").write_text(OWN.replace("#ff00ff", "#ff00zz"))
    engine.settings.current.console.theme = "own"
    app = ConsoleApp(lambda: engine, home, [])  # type: ignore[arg-type, return-value]
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await live(pilot)
        assert app.theme == "own"
        await until(pilot, lambda: "torn.toml" in screen_text(app))
