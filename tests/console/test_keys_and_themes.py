"""Keys in one table, remapped by settings; themes as files, every colour parsed (SPEC 9.7)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpy_console import appearance
from clawpy_console.app import ConsoleApp
from clawpy_console.keys import ACTION_BY_ID, ACTIONS, check_keymap
from engine.model import Refusal
from tests.console.card_steps import FIRST
from tests.console.driving import read_screen
from tests.console.stories import (
    CLOSED,
    Given,
    Stories,
    Until,
    called,
    hides,
    make_story_test,
    never_called,
    press,
    sees,
    type_text,
)
from tests.support import read_table

TABLE = read_table(__file__)


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


def with_keys(**keys: str) -> Given:
    return Given(
        lambda engine: setattr(
            engine.settings.current, "keys", {name.replace("__", "."): key for name, key in keys.items()}
        )
    )


def is_in_order(app: ConsoleApp) -> bool:
    """Whether the help begins with the keys of the pane, and ends with those of every screen."""
    places = [read_screen(app).find(heading) for heading in ("In this pane, now", "one up", "Everywhere")]
    return places == sorted(places)


def compute_contrast(item: str, other: str) -> float:
    from textual.color import Color

    def compute_luminance(name: str) -> float:
        parts = [
            part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4
            for part in Color.parse(name).normalized
        ]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    bright, dark = sorted((compute_luminance(item), compute_luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_the_keys_as_shipped_do_not_clash():
    good, refusals = check_keymap({action.id: action.keys for action in ACTIONS})
    assert refusals == []
    assert set(good) == set(ACTION_BY_ID)


@pytest.mark.parametrize("keys, named", TABLE["bad_keys"])
def test_a_bad_entry_of_the_keymap_is_named(keys: dict[str, str], named: str):
    good, (refusal,) = check_keymap(keys)
    assert good == {}
    assert named in str(refusal)


def test_two_keys_may_be_swapped():
    assert check_keymap({"work.land": "b", "work.branch": "L"}) == ({"work.land": "b", "work.branch": "L"}, [])


def test_f12_stops_whatever_the_keymap_says():
    assert check_keymap({"app.stop": "f9"})[0] == {"app.stop": "f9,f12"}


@pytest.mark.long
@given(st.dictionaries(st.sampled_from(sorted(ACTION_BY_ID)) | st.text(max_size=8), st.text(max_size=12), max_size=6))
def test_any_keymap_is_used_or_refused(keys: dict[str, str]):
    good, refusals = check_keymap(keys)
    assert len(good) + len({str(refusal) for refusal in refusals}) >= min(1, len(keys))


COPY_TEXT = Until("something to copy", lambda app: app.screen.is_ready and app.screen.find_text_to_copy())
COPIED = Until("the id", lambda app: app.clipboard and app.clipboard == app.screen.find_text_to_copy())
ENDED = Until("the end", lambda app: not app.is_running)
DND = "do not disturb for 2 hours; again"
STORIES: Stories = {
    "the help begins with the keys of the pane, and finds others": (
        press("6 question_mark"),
        sees(DND),
        Until("the order", is_in_order),
        type_text("undo a landing"),
        sees("undo a landing"),
        hides(DND),
        press("escape"),
        sees(DND),
        press("pagedown", times=9),
        sees("close; the text is kept"),
        press("question_mark"),
        CLOSED,
    ),
    "q leaves, and is a letter while one types": (
        Given(lambda engine: engine.sessions.all.pop(0)),
        sees("? keys  q quit"),
        press("n q"),
        sees("New prompt"),
        press("escape q"),
        ENDED,
    ),
    "Ctrl+C ends nothing, and names the key that leaves": (
        with_keys(app__quit_typing="f10"),
        press("ctrl+c"),
        sees("F10 quits, F12 stops everything"),
    ),
    "remapped keys work and are shown, and a bad one is named": (
        with_keys(stack__dismiss="c", stack__nope="y"),
        sees("stack.nope"),
        press("left"),
        never_called("dismiss"),
        press("c"),
        called("dismiss", FIRST),
        sees("c dismiss"),
    ),
    "a hint names the key of the operator": (with_keys(panes__next="f6"), press("6"), sees("F6 switches")),
    "a theme of the settings that does not exist is named": (
        Given(lambda engine: setattr(engine.settings.current.console, "theme", "gone")),
        sees("there is no theme 'gone'"),
        Until("the usual theme", lambda app: app.theme == appearance.DEFAULT_THEME),
    ),
    **{
        f"y copies the id on screen {screen}": (press(screen), COPY_TEXT, press("y"), COPIED, sees("Copied"))
        for screen in "124567"
    },
}


test_story = pytest.mark.long(make_story_test(STORIES))


@pytest.mark.parametrize("old, new, named", TABLE["bad_themes"])
def test_a_bad_theme_names_file_and_key(tmp_path: Path, old: str, new: str, named: str):
    file = tmp_path / "own.toml"
    file.write_text(OWN.replace(old, new))
    with pytest.raises(Refusal) as refused:
        appearance.load_theme(file)
    assert str(file) in refused.value.message
    assert named in str(refused.value)


@pytest.mark.parametrize("name, least", [("clawpy-dark", 4.5), ("clawpy-light", 4.5), ("clawpy-high-contrast", 7)])
def test_text_can_be_read(name: str, least: float):
    import tomllib

    colors = tomllib.loads((appearance.find_shipped_folder() / f"{name}.toml").read_text())["colors"]
    for key in ("text", "grey", "accent", "wants", "wrong", "good"):
        assert compute_contrast(colors[key], colors["background"]) >= least, key
        assert compute_contrast(colors[key], colors["surface"]) >= least * 0.9, key
    assert compute_contrast(colors["faint"], colors["background"]) >= 3
