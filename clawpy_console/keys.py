"""Every key of the console in one place: id, key, what it does, group.

The table is `keys.txt`: bindings, the key line, the help screen and the check of the operator's `[keys]` come from it.

`make_bindings` gives an app, a screen or a widget the keys of its groups. `check_keymap` judges those that the operator
chose.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from textual.binding import Binding, BindingType
from textual.keys import KEY_ALIASES, Keys, key_to_character

from clawpy_console.fields import WORDS
from engine.frozen import frozen
from engine.model import Refusal


@frozen
class Action:
    """One thing a key does.

    `id` is `group.name`, `keys` comma-separated as Textual names them, `label` the word in the key line ("" keeps it
    out), `tooltip` the sentence in the help. `method` is the method's name without `action_`. A key with `priority` is
    taken before the widget in focus sees it.
    """

    id: str
    keys: str
    label: str
    tooltip: str
    method: str
    priority: bool = False

    @property
    def group(self) -> str:
        """The first part of its id."""
        return self.id.partition(".")[0]


def _read_sections() -> tuple[dict[str, str], dict[str, list[str]]]:
    """The titles and the rows of the sections of `keys.txt`, by the name in brackets."""
    titles: dict[str, str] = {}
    rows: dict[str, list[str]] = {}
    name = ""
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            name, _, titles[name] = line[1:].partition("]")
            rows[name] = []
        elif line and not line.startswith("#"):
            rows[name].append(line)
    return titles, rows


def _make_action(group: str, row: str) -> Action:
    """Make an action from a row of `keys.txt`. A further cell, with the word `priority`, gives the key priority."""
    name, keys, label, tooltip, method, *priority = (cell.strip() for cell in row.split(" | "))
    return Action(f"{group}.{name}", keys, label, tooltip, method, bool(priority))


_TITLES, _ROWS = _read_sections()
GROUP_TITLES = {name: title.strip() for name, title in _TITLES.items() if title}
"""The titles of the groups."""

ACTIONS = tuple(_make_action(group, row) for group in GROUP_TITLES for row in _ROWS[group])
ACTION_BY_ID = {action.id: action for action in ACTIONS}
_LINE_ORDER = _ROWS["line-order"][0].split()
KEY_LINE_ACTIONS = sorted(
    (action for action in ACTIONS if action.label), key=lambda action: _LINE_ORDER.index(action.group)
)
"""The actions of the key line, in its order."""

_LIVE_TOGETHER = [set(row.split()) for row in _ROWS["live-together"]]
"""Groups, and names of screens, whose keys work at the same time."""

_SHARED_KEYS = [set(row.split()) for row in _ROWS["shared-keys"]]
"""Pairs of actions that may share a key."""

_SHOWN_KEYS = WORDS["key"]
"""The signs and words for keys on screens, by Textual's name."""

_KEY_NAMES = {key.value for key in Keys} | set(KEY_ALIASES)
"""Textual's names of keys."""


def make_bindings(*groups: str, without: str = "") -> list[BindingType]:
    """The bindings of these groups for the `BINDINGS` of an app, a screen or a widget, `without` that of one id."""
    return [
        Binding(
            action.keys,
            action.method,
            action.label or action.tooltip,
            show=bool(action.label),
            priority=action.priority,
            tooltip=action.tooltip,
            id=action.id,
        )
        for action in ACTIONS
        if action.group in groups and action.id != without
    ]


def format_key(action_id: str, keymap: Mapping[str, str]) -> str:
    """The key of `action_id` as the key line and the help write it, remapped or not."""
    first = _list_keys(action_id, keymap)[0]
    if re.fullmatch(r"f\d+", first):
        return first.upper()
    return _SHOWN_KEYS.get(first) or key_to_character(first) or re.sub(r"^ctrl\+", "^", first)


def find_key_line_actions(keys: Collection[str], keymap: Mapping[str, str]) -> list[Action]:
    """The actions of the key line that one of `keys` does on any screen."""
    return [action for action in KEY_LINE_ACTIONS if not set(keys).isdisjoint(_list_keys(action.id, keymap))]


def is_on_screen(action: Action, mode: str) -> bool:
    """Whether an action can be done somewhere on the screen `mode`."""
    return action.group == "app" or _are_live_together({mode, action.group})


def _are_live_together(names: set[str]) -> bool:
    """Whether keys of these groups and screens work at the same time somewhere."""
    return any(names <= live for live in _LIVE_TOGETHER)


def format_key_with_letters(action_id: str, keymap: Mapping[str, str]) -> str:
    """The key as `format_key` writes it, then the letters that do the same."""
    _, *further_keys = _list_keys(action_id, keymap)
    return " ".join([format_key(action_id, keymap), *(key for key in further_keys if len(key) == 1)])


class BadKeys(Refusal):
    """The refusal `bad_keys` of the entry for one action in the operator's `[keys]`."""

    def __init__(self, action_id: str, problem: str, fix: str) -> None:
        super().__init__("bad_keys", f"keys.{action_id}: {problem}", fix)


def check_keymap(keys: Mapping[str, str]) -> tuple[dict[str, str], list[BadKeys]]:
    """The part of the operator's `[keys]` that can be used, and a refusal for each entry that cannot.

    Refused are an id that does not exist, a key that no terminal sends, and a key that another action has too. The
    stop key may be given further keys, but F12 always stops.
    """
    good: dict[str, str] = {}
    refusals: list[BadKeys] = []
    for action_id, text in keys.items():
        try:
            good[action_id] = _check_keys(action_id, text)
        except BadKeys as refusal:
            refusals.append(refusal)
    for action_id in list(good):  # of two entries with the same key the first is refused, and the second stays
        for other_id, key in _find_clashes(action_id, good):
            problem = f"{key!r} is already {other_id}"
            refusals.append(BadKeys(action_id, problem, f"give {other_id} another key too"))
            good.pop(action_id, None)
    return good, refusals


def _check_keys(action_id: str, text: str) -> str:
    """The keys in `text` for an action. Raises `BadKeys`."""
    if action_id not in ACTION_BY_ID:
        raise BadKeys(action_id, "no such action", _suggest_action(action_id))
    keys = [key.strip() for key in text.split(",") if key.strip()]
    unknown = [key for key in keys if not _is_key(key)]
    if unknown or not keys:
        problem = f"{unknown[0]!r} is not a key" if unknown else "names no key"
        raise BadKeys(action_id, problem, "for example: x, X, ctrl+x, f5, left")
    if action_id == "app.stop" and "f12" not in keys:
        keys.append("f12")
    return ",".join(keys)


def _suggest_action(action_id: str) -> str:
    """The actions that were probably meant by an unknown id, in words; else where the ids are shown."""
    if likely := difflib.get_close_matches(action_id, ACTION_BY_ID, n=3, cutoff=0.8):
        return f"did you mean {' or '.join(likely)}?"
    return "`clawpy help keys` shows the name of each action, such as stack.approve"


def _is_key(key: str) -> bool:
    """Whether a terminal may send this key, which may begin with modifiers. A character beyond ASCII counts as itself
    alone, because Unicode has names such as "banana"."""
    *modifiers, last = key.split("+") if key != "+" else ["+"]
    if any(modifier not in ("ctrl", "shift", "alt") for modifier in modifiers):
        return False
    return (
        key in _KEY_NAMES
        or last in _KEY_NAMES
        or last in _SHOWN_KEYS
        or len(last) == 1
        or (key_to_character(last) or "€").isascii()
    )


def _list_keys(action_id: str, keymap: Mapping[str, str]) -> list[str]:
    """The keys of an action, remapped or not; that of the key line is first."""
    return [key.strip() for key in keymap.get(action_id, ACTION_BY_ID[action_id].keys).split(",")]


def _find_clashes(action_id: str, keymap: Mapping[str, str]) -> list[tuple[str, str]]:
    """The actions that have a key of `action_id` too where both are live, each with that key."""
    group = ACTION_BY_ID[action_id].group
    keys = set(_list_keys(action_id, keymap))
    clashes = []
    for other in ACTIONS:
        groups = {group, other.group}
        is_live_together = len(groups) == 1 or "app" in groups or _are_live_together(groups)
        if other.id != action_id and is_live_together and {action_id, other.id} not in _SHARED_KEYS:
            clashes += [(other.id, key) for key in sorted(keys.intersection(_list_keys(other.id, keymap)))]
    return clashes
