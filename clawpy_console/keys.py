"""Every key of the console in one place: id, key, what it does, group (STYLE habit 4).

Bindings, the key line, the help screen and the check of the operator's `[keys]` are all made from this table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from textual.binding import Binding, BindingType
from textual.keys import KEY_ALIASES, Keys, key_to_character

from engine.model import Refusal


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a key does.

    `id` is `group.name`, `keys` comma-separated as Textual names them, `label` the word in the key line ("" keeps it
    out), `tooltip` the sentence in the help. `action` is the method's name without `action_`.
    """

    id: str
    keys: str
    label: str
    tooltip: str
    action: str
    priority: bool = False

    @property
    def group(self) -> str:
        return self.id.partition(".")[0]


GROUPS = {
    "app": "Everywhere",
    "stack": "Cards (while they have the focus)",
    "mission": "Mission control",
    "panes": "Moving about",
    "zoom": "A pane on the full screen",
    "columns": "Between columns",
    "filter": "Where a list can be filtered",
    "rows": "In a list",
    "queue": "In the list “waiting for you”",
    "work": "Work",
    "changes": "Work, in the list of changed files",
    "diff": "Work, in the diff",
    "asked": "Work, while a session asks for a permission",
    "reply": "Work, in the line of a reply",
    "xray": "X-ray of a prompt",
    "hierarchy": "Hierarchy",
    "tree": "Hierarchy, in the tree",
    "moving": "Hierarchy, where to move an agent",
    "member": "Hierarchy, a new agent",
    "memory": "Memory",
    "edit": "A file of an agent, being edited",
    "profile": "A leader's guidance, being edited",
    "recalled": "Memory, what would be recalled",
    "learning": "Learning",
    "candidates": "Learning, on a candidate",
    "learnings": "Learning, on a learning",
    "deciding": "Learning, while giving a reason",
    "preview": "Where a change is previewed",
    "safety": "Safety",
    "insights": "Insights",
    "details": "Card details",
    "prompt": "New prompt",
}

ACTIONS: tuple[Action, ...] = (
    Action("app.stop", "f12", "stop", "stop everything now, running sessions too", "app.stop_everything", True),
    Action("app.resume", "R", "resume", "resume after a stop, a month stop or a pause", "app.resume"),
    Action("app.mission", "1", "", "mission control", "app.go('mission')"),
    Action("app.work", "2", "", "work: sessions, transcripts, changes to land", "app.go('work')"),
    Action("app.hierarchy", "3", "", "hierarchy: agents, guidance, findings", "app.go('hierarchy')"),
    Action("app.memory", "4", "", "memory: seven layers, what would be recalled, and why", "app.go('memory')"),
    Action("app.learning", "5", "", "learning: proposed changes, and what sessions taught", "app.go('learning')"),
    Action("app.safety", "6", "", "safety: rails, cost caps, blocked work", "app.go('safety')"),
    Action("app.insights", "7", "", "insights: how good predictions are, training, drift", "app.go('insights')"),
    Action("app.copy", "y", "", "copy the id of what is in focus", "screen.copy_id"),
    Action("app.hire", "H", "", "connect a coding agent or a local model to koji-core", "app.hire"),
    Action(
        "app.jump",
        "apostrophe",
        "jump",
        "jump mode: a label on everything; type one to go there",
        "app.jump",
        True,
    ),
    Action("app.jump_typing", "f2", "", "the same, while typing too", "app.jump(True)", True),
    Action("app.help", "question_mark", "keys", "all keys", "app.help"),
    Action("app.palette", "ctrl+p", "palette", "every command by name", "app.command_palette", True),
    Action("app.commands", "colon", "", "the same", "app.command_palette"),
    Action("app.quit", "q", "quit", "quit; asks first when sessions are running", "app.leave"),
    Action("app.quit_typing", "ctrl+q", "", "the same, while typing too", "app.leave", True),
    Action("stack.approve", "right,l", "approve", "approve the card: it runs", "approve"),
    Action("stack.dismiss", "left,h", "dismiss", "dismiss the card and mute its subject for a while", "dismiss"),
    Action("stack.not_now", "1", "", "just after a dismissal: not now", "why('not-now')"),
    Action("stack.wrong", "2", "", "just after a dismissal: it is wrong", "why('wrong')"),
    Action("stack.done", "3", "", "just after a dismissal: it is already done", "why('already-done')"),
    Action("stack.never_here", "4", "", "just after a dismissal: never in this workspace", "why('never-here')"),
    Action("stack.never", "5", "", "just after a dismissal: never anywhere", "why('never-anywhere')"),
    Action("stack.next", "down,j", "", "show the next card", "turn(1)"),
    Action("stack.previous", "k", "", "show the previous card", "turn(-1)"),
    Action("stack.snooze", "up,s", "snooze", "snooze the card for 2 hours", "snooze"),
    Action("stack.insist", "A", "", "approve a risky card after reading the reason", "insist"),
    Action("stack.details", "enter", "details", "details; edit it before approving", "screen.details"),
    Action("stack.undo", "u", "undo", "undo the last decision", "screen.undo"),
    Action("mission.own", "n", "new", "new prompt", "own_prompt"),
    Action("mission.predict", "p", "check", "check for new cards now", "predict"),
    Action("mission.filter", "w", "workspace", "cards of one workspace, the next, all", "filter"),
    Action("mission.back", "escape", "cards", "back to the cards", "back"),
    Action("panes.next", "tab", "next pane", "go to the next pane", "next_pane"),
    Action("panes.previous", "shift+tab", "", "go to the previous pane", "previous_pane"),
    Action("panes.zoom", "z,enter", "zoom", "the focused pane on the full screen; again: all panes", "zoom"),
    Action("zoom.back", "escape", "back", "from the full screen back to all panes", "zoom_back", True),
    Action("columns.left", "left,h", "", "the pane to the left", "previous_pane"),
    Action("columns.right", "right,l", "", "the pane to the right", "next_pane"),
    Action("filter.open", "slash", "filter", "filter the list by words", "filter"),
    Action("rows.up", "up,k", "", "one up", "step(-1)"),
    Action("rows.down", "down,j", "", "one down", "step(1)"),
    Action("rows.page_up", "pageup", "", "a page up", "page(-1)"),
    Action("rows.page_down", "pagedown", "", "a page down", "page(1)"),
    Action("rows.first", "home,g", "", "to the first", "first"),
    Action("rows.last", "end,G", "", "to the last", "last"),
    Action("rows.open", "enter", "open", "open what is under the cursor", "open"),
    Action("queue.dismiss", "D", "dismiss", "dismiss an interrupted session from the list", "screen.dismiss_waiting"),
    Action("work.land", "L", "land", "land the changes in the working tree", "land"),
    Action("work.branch", "b", "branch", "commit the changes to a new branch", "branch"),
    Action("work.discard", "D", "discard", "discard the changes; asks first", "discard"),
    Action("work.undo", "u", "undo", "undo a landing", "undo"),
    Action("work.reply", "f", "reply", "message a running session; continue a finished one", "reply"),
    Action("work.xray", "x", "x-ray", "exactly what was sent to the model, line by line", "xray"),
    Action("work.open", "o", "open", "a shell in the session's folder", "open_folder"),
    Action("work.stop", "S", "stop", "stop the session", "stop"),
    Action("diff.next_hunk", "]", "next hunk", "the next hunk", "seek('hunk', 1)"),
    Action("diff.previous_hunk", "[", "", "the previous hunk", "seek('hunk', -1)"),
    Action("diff.next_file", "}", "", "the next file", "seek('file', 1)"),
    Action("diff.previous_file", "{", "", "the previous file", "seek('file', -1)"),
    Action("diff.fold", "enter", "fold", "fold or unfold the hunk; on a file, all its hunks", "fold"),
    Action("diff.mark", "space", "mark", "mark the hunk or the file: only what is marked lands", "mark"),
    Action("diff.comment", "c", "comment", "comment on the line", "screen.comment"),
    Action("diff.remove_comment", "delete,backspace", "", "remove the comment under the cursor", "remove_comment"),
    Action("diff.shift_right", ">,shift+right", "", "the rest of long lines", "shift(1)"),
    Action("diff.shift_left", "<,shift+left", "", "the beginning of long lines", "shift(-1)"),
    Action("changes.mark", "space", "mark", "mark the file or the folder: only what is marked lands", "mark_file"),
    Action("work.send_comments", "C", "send comments", "send the comments to the agent, as a card", "send_comments"),
    Action("asked.once", "a", "allow once", "allow this once", "answer('allow-once')"),
    Action("asked.session", "A", "for session", "allow it for the rest of the session", "answer('allow-session')"),
    Action("asked.deny", "n", "deny", "deny this once", "answer('deny-once')"),
    Action("asked.never", "N", "", "deny it for the rest of the session", "answer('deny-session')"),
    Action("asked.next", "m", "next request", "show the next of several requests", "next_request"),
    Action("reply.close", "escape", "cancel", "send nothing", "close", True),
    Action("xray.copy", "y", "copy", "copy the line", "copy_line"),
    Action("xray.copy_all", "Y", "copy all", "copy the whole prompt", "copy_all"),
    Action("xray.close", "escape,x", "close", "back to the session", "close"),
    Action("tree.fold", "left,h", "", "fold the agents below; if folded, go to the leader", "fold"),
    Action("tree.unfold", "right,l", "", "unfold the agents below; if unfolded, go to the first", "unfold"),
    Action("tree.toggle", "space", "fold", "fold or unfold the agents below", "toggle_fold"),
    Action("hierarchy.next", "],right,l", "next tab", "the next tab", "tab(1)"),
    Action("hierarchy.move", "m", "move", "move it under another leader, with a preview", "move"),
    Action("hierarchy.tier", "t", "tier", "set its tier, or let the rules decide", "tier"),
    Action(
        "hierarchy.edit",
        "e",
        "edit",
        "edit soul.md; in the guidance tab of a leader, its guidance",
        "edit",
    ),
    Action("hierarchy.editor", "E", "", "the same in your editor (EDITOR)", "editor"),
    Action("hierarchy.new", "n", "new", "create an agent under the one at the cursor", "new"),
    Action("hierarchy.retire", "D", "retire", "retire it; asks first, keeps its folder", "retire"),
    Action("hierarchy.restore", "B", "restore", "restore a retired agent", "restore"),
    Action("hierarchy.undo", "u", "undo", "undo the last change", "undo"),
    Action("hierarchy.everyone", "a", "everyone", "show or fold agents that have not worked", "everyone"),
    Action("hierarchy.flush", "f", "send up", "send findings that passed all gates to their leaders now", "flush"),
    Action("hierarchy.teach", "T", "teach", "write guidance into every worker's soul.md now; asks first", "teach"),
    Action("hierarchy.previous", "[,left,h", "", "the previous tab", "tab(-1)"),
    Action("moving.up", "up", "", "the leader above, while typing", "step(-1)", True),
    Action("moving.down", "down", "other leader", "the leader below, while typing", "step(1)", True),
    Action("moving.move", "enter", "move it there", "move it under this leader", "move", True),
    Action("member.make", "ctrl+s", "create", "create the agent", "make", True),
    Action("member.close", "escape", "cancel", "create no agent", "close", True),
    Action("memory.recall", "r", "recall", "preview what a task would recall, and why", "recall"),
    Action("memory.meaning", "m", "meaning", "search by meaning", "meaning"),
    Action("memory.edit", "e", "edit", "edit the agent's file here", "edit"),
    Action("memory.editor", "E", "editor", "edit the agent's file in your editor (EDITOR)", "editor"),
    Action("memory.promote", "a", "keep", "keep the draft as a fact", "promote"),
    Action("memory.reject", "n", "reject", "reject the draft; it is not drafted again", "reject"),
    Action("memory.forget", "x", "forget", "forget its text everywhere; shows where, then asks", "forget"),
    Action("edit.save", "ctrl+s", "save", "check the file and write it", "save", True),
    Action("edit.theirs", "ctrl+t", "take theirs", "continue with the other program's text", "theirs", True),
    Action("edit.close", "escape", "cancel", "close; asks first when there are unsaved changes", "close", True),
    Action("profile.save", "ctrl+s", "save", "save it, once the preview is shown", "save", True),
    Action("recalled.ask", "slash", "another task", "ask for another task", "ask"),
    Action("recalled.copy", "Y", "copy", "copy the block as it would be sent", "copy_block"),
    Action("recalled.close", "escape", "close", "back to memory", "close", True),
    Action("learning.group", "s", "show", "show one group only: needs your decision, active, …", "only('group')"),
    Action("learning.kind", "t", "kind", "show one kind of learning only", "only('kind')"),
    Action("learning.chain", "C", "recurring", "promote learnings that recur in several sessions now", "chain"),
    Action("candidates.approve", "a", "activate", "activate it, with a preview", "decide('approve')"),
    Action("candidates.reject", "x", "reject", "reject it, with a reason", "decide('reject')"),
    Action("candidates.roll_back", "b", "roll back", "roll it back, with a reason", "decide('roll back')"),
    Action("candidates.undo", "u", "undo", "undo the last decision", "undo"),
    Action("learnings.retract", "x", "retract", "retract it; shows what was promoted from it", "decide('retract')"),
    Action("learnings.keep", "a", "keep", "keep it although its source was retracted", "decide('keep')"),
    Action("learnings.promote", "p", "everywhere", "apply it in all projects", "decide('promote')"),
    Action("deciding.decide", "ctrl+s", "confirm", "confirm, with the reason", "decide", True),
    Action("preview.page_down", "pagedown", "scroll", "a page down in the preview", "page(1)", True),
    Action("preview.page_up", "pageup", "", "a page up in the preview", "page(-1)", True),
    Action("preview.close", "escape", "cancel", "close; asks first when there are unsaved changes", "close", True),
    Action("safety.allow_once", "a", "allow once", "allow exactly this text once", "allow_once"),
    Action("safety.dnd", "d", "dnd", "do not disturb for 2 hours; again to end", "dnd"),
    Action("insights.train", "t", "train", "train a Twin model, or stop the training; asks first", "train"),
    Action("insights.swap", "s", "swap", "switch to the last trained model or the previous one; asks first", "swap"),
    Action("insights.period", "p", "period", "the last 7, 30 or 90 days, or all time", "period"),
    Action("insights.workspace", "w", "workspace", "figures of one workspace, the next, all", "workspace"),
    Action("details.approve", "a", "approve", "approve the card as edited", "approve"),
    Action("details.approve_here", "ctrl+s", "approve", "the same, while typing", "approve(True)", True),
    Action("details.insist", "A", "", "approve a risky card after reading the reason", "insist"),
    Action("details.edit", "e", "edit", "edit the prompt or the parameters", "edit"),
    Action("details.close", "escape", "back", "leave the text; otherwise back to the cards", "close", True),
    Action("prompt.send", "enter,ctrl+s", "send", "send it: a flow runs at once", "send"),
    Action(
        "prompt.newline",
        "ctrl+j,shift+enter",
        "new line",
        "a new line; Shift+Enter if the terminal supports it",
        "newline",
    ),
    Action("prompt.complete", "tab", "complete", "complete a flow or its parameters; again: the next", "complete"),
    Action("prompt.place", "ctrl+t", "workspace", "the next workspace", "place"),
    Action("prompt.hire", "ctrl+o", "connect", "connect an agent or a model on this machine", "hire"),
    Action("prompt.close", "escape", "close", "close; the text is kept", "close"),
)

BY_ID = {action.id: action for action in ACTIONS}

_LIST = {"rows", "panes", "zoom"}
_COLUMNS = _LIST | {"columns", "filter"}

# Keys of two groups clash when both can be live at once; those of "app" always are. `rows` and `stack` never are: only
# one has the focus. A group that is not here is alone.
_TOGETHER = (
    {"stack", "panes", "zoom", "mission"},
    _LIST | {"queue", "mission"},
    _COLUMNS | {"work", "asked", "changes"},
    _COLUMNS | {"work", "asked", "diff"},
    _LIST | {"xray"},
    _LIST | {"filter", "hierarchy", "tree"},
    {"moving", "preview"},
    _COLUMNS | {"memory"},
    {"profile", "preview"},
    _LIST | {"recalled"},
    _COLUMNS | {"learning", "candidates"},
    _COLUMNS | {"learning", "learnings"},
    {"deciding", "preview"},
    _COLUMNS | {"safety"},
    _COLUMNS | {"insights"},
)

_ON_PURPOSE = (
    {"panes.zoom", "rows.open"},
    {"panes.zoom", "stack.details"},
    {"panes.zoom", "diff.fold"},
    {"rows.open", "diff.fold"},
    {"zoom.back", "mission.back"},
    {"zoom.back", "xray.close"},
    {"zoom.back", "recalled.close"},
    {"app.copy", "xray.copy"},
    {"app.mission", "stack.not_now"},
    {"app.work", "stack.wrong"},
    {"app.hierarchy", "stack.done"},
    {"app.memory", "stack.never_here"},
    {"app.learning", "stack.never"},
    {"tree.fold", "hierarchy.previous"},
    {"tree.unfold", "hierarchy.next"},
)
"""Pairs that may share a key: the same thing, or what stands nearer to the focus does it."""


def bindings(*groups: str, but: str = "") -> list[BindingType]:
    """The bindings of these groups, `but` the one with that id, for a `BINDINGS` of an app, a screen or a widget."""
    return [
        Binding(
            action.keys,
            action.action,
            action.label or action.tooltip,
            show=bool(action.label),
            priority=action.priority,
            tooltip=action.tooltip,
            id=action.id,
        )
        for action in ACTIONS
        if action.group in groups and action.id != but
    ]


def shown_key(action_id: str, keymap: Mapping[str, str]) -> str:
    """How the key of `action_id` is written in the key line and the help, remapped or not."""
    first = keymap.get(action_id, BY_ID[action_id].keys).split(",")[0].strip()
    if re.fullmatch(r"f\d+", first):
        return first.upper()
    return _SHORT.get(first) or key_to_character(first) or re.sub(r"^ctrl\+", "^", first)


def shown_keys(action_id: str, keymap: Mapping[str, str]) -> str:
    """The key as `shown_key` writes it, then the letters that do the same."""
    others = keymap.get(action_id, BY_ID[action_id].keys).split(",")[1:]
    return " ".join([shown_key(action_id, keymap), *(one for one in others if len(one) == 1)])


_SHORT = {
    "left": "←", "right": "→", "up": "↑", "down": "↓", "enter": "⏎", "escape": "esc", "tab": "⇥", "space": "space",
    "question_mark": "?", "slash": "/", "pageup": "PgUp", "pagedown": "PgDn",
    "shift+tab": "⇧⇥", "delete": "del", "backspace": "⌫",
}  # fmt: skip

_NAMED = {key.value for key in Keys} | set(KEY_ALIASES)


def check_keymap(keys: Mapping[str, str]) -> tuple[dict[str, str], list[Refusal]]:
    """The part of the operator's `[keys]` that can be used, and a refusal for each entry that cannot.

    Refused are an id that does not exist, a key that no terminal sends, and a key that another action has too. The
    stop key may be given further keys, but F12 always stops.
    """
    good: dict[str, str] = {}
    refusals: list[Refusal] = []
    for action_id, text in keys.items():
        if action_id not in BY_ID:
            near = ", ".join(one.id for one in ACTIONS if one.group == action_id.partition(".")[0]) or ", ".join(GROUPS)
            refusals.append(Refusal("bad_keys", f"[keys] {action_id}: no such action", f"there are: {near}"))
            continue
        wanted = [one.strip() for one in text.split(",") if one.strip()]
        unknown = [one for one in wanted if not _is_key(one)]
        if unknown or not wanted:
            said = f"{unknown[0]!r} is not a key" if unknown else "names no key"
            refusals.append(Refusal("bad_keys", f"[keys] {action_id}: {said}", "for example: x, X, ctrl+x, f5, left"))
            continue
        if action_id == "app.stop" and "f12" not in wanted:
            wanted.append("f12")
        good[action_id] = ",".join(wanted)
    for action_id in list(good):
        for other, key in _clashes(action_id, good):
            refusals.append(
                Refusal("bad_keys", f"[keys] {action_id}: {key!r} is already {other}", f"give {other} another key too")
            )
            good.pop(action_id, None)
    return good, refusals


def _is_key(key: str) -> bool:
    *modifiers, last = key.split("+") if key != "+" else ["+"]
    if any(one not in ("ctrl", "shift", "alt") for one in modifiers):
        return False
    return key in _NAMED or last in _NAMED or last in _SHORT or key_to_character(last) is not None


def _keys_of(action: Action, keymap: Mapping[str, str]) -> set[str]:
    return {key.strip() for key in keymap.get(action.id, action.keys).split(",")}


def _clashes(action_id: str, keymap: Mapping[str, str]) -> list[tuple[str, str]]:
    mine = BY_ID[action_id]
    found = []
    for other in ACTIONS:
        groups = {mine.group, other.group}
        together = len(groups) == 1 or "app" in groups or any(groups <= live for live in _TOGETHER)
        if other.id != action_id and together and {mine.id, other.id} not in _ON_PURPOSE:
            found += [(other.id, key) for key in sorted(_keys_of(mine, keymap) & _keys_of(other, keymap))]
    return found
