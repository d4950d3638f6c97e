"""Documents as text for people: aligned, coloured only in a terminal, plain when piped (SPEC 9.7, 9.8).

Colour never carries meaning alone. Whatever comes from outside loses its control characters here once more.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, TextIO

from clawpy_console.memory_text import drafts, forget
from clawpy_console.simulation_text import simulation
from clawpy_console.xray_text import replied, xray
from engine.values import Refusal, sanitise

Document = Mapping[str, Any]

RECALLED_MOST = 300
"""Characters of a memory that are shown; --json has all of it."""


@dataclass(frozen=True, slots=True)
class Style:
    """How to write: in colour or not, and how wide the terminal is (0: no terminal, nothing is cut)."""

    colour: bool = False
    width: int = 0

    @classmethod
    def of(cls, stream: TextIO) -> Style:
        """What fits `stream`; NO_COLOR and TERM=dumb are honoured."""
        if not stream.isatty():
            return cls()
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        return cls(not plain, shutil.get_terminal_size().columns)

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def bold(self, text: str) -> str:
        return self._paint("1", text)

    def dim(self, text: str) -> str:
        return self._paint("2", text)

    def good(self, text: str) -> str:
        return self._paint("32", text)

    def bad(self, text: str) -> str:
        return self._paint("31", text)

    def wants(self, text: str) -> str:
        return self._paint("33", text)


def render(verb: str, document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The text for a verb's document."""
    return RENDER[verb](document, options, style)


def refusal(error: Refusal, style: Style) -> str:
    """What was not done, why, and how to mend it."""
    lines = [style.bad("clawpy: ") + _clean(error.message)]
    if error.fix:
        lines.append("        " + style.dim(_clean(error.fix)))
    return "\n".join(lines)


def cards(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The stack, or the latest cards of any status."""
    found = document["predictions"]
    lines = [_card(one, style) for one in found]
    lines += [style.dim(f"! {_clean(error)}") for error in document.get("errors", ())]
    if not found and (elsewhere := document.get("elsewhere")):
        places = ", ".join(f"{number} in {_clean(PurePath(place).name)}" for place, number in elsewhere.items())
        return "\n".join([f"no cards for this workspace; {places}", *lines])
    if not found:
        return "\n".join(["no cards" + ("" if options.get("all") else "; `clawpy predict` looks for some now"), *lines])
    return "\n".join(lines)


def _card(one: Document, style: Style) -> str:
    badges = [word for word, on in (("SUGGESTED", one["band"] in ("suggested", "act")), ("NEW", one["novel"])) if on]
    if one["status"] != "pending":
        badges.append(" ".join(word for word in (one["status"], one["outcome"]) if word))
    if one["snoozedUntil"] and one["status"] == "pending":
        badges.append(f"snoozed until {_time(one['snoozedUntil'])}")
    head = f"{style.bold(_clean(one['id']))}  {one['confidence']:4.0%}  {_place(one)}"
    lines = [head + ("  " + style.wants(" ".join(badges)) if badges else ""), f"    {_clean(one['prompt'])}"]
    if one["reasoning"]:
        lines.append("    " + style.dim(_clean(one["reasoning"])))
    if one["status"] == "pending" and not one["undoNote"]:
        lines.append("    " + style.wants("nothing takes it yet"))  # so nothing is known of cost and undo either
    elif one["status"] == "pending":
        changes = "only checks" if one["checkOnly"] else "changes wait for you to land them"
        served = f", by {_clean(one['servedBy'])}" if one.get("servedBy") else ""
        lines.append("    " + style.dim(f"est. ${one['estimatedCost']:.2f}, {changes}{served}"))
    if one["status"] == "pending":
        # That a person decides is what a card is for; anything else a rail says is news.
        asks = [each for each in one["verdicts"] if each["verdict"] != "allow" and each["rail"] != "gate"]
        lines += [
            f"    {style.wants(each['verdict'])} {_clean(each['rail'])}: {_clean(each['reason'])}" for each in asks
        ]
    if one["note"]:
        lines.append(f"    {_clean(one['note'])}")
    return "\n".join(lines)


def lap(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Card, session and change set after a verb."""
    lines = []
    card, session, change = document["prediction"], document["session"], document["changeSet"]
    if card is not None:
        outcome = f", {card['outcome']}" if card["outcome"] else ""
        snoozed = card["status"] == "pending" and card["snoozedUntil"]
        state = f"snoozed until {_time(card['snoozedUntil'])}" if snoozed else card["status"] + outcome
        lines += [f"{style.bold(_clean(card['id']))}  {state}  {_place(card)}", f"    {_clean(card['prompt'])}"]
        if card["note"]:
            lines.append(f"    {_clean(card['note'])}")
    if session is not None:
        lines += _session(session, style)
    for line in document.get("transcript", ()):
        text = _clean(line["text"])
        told = f"$ {text}" if line["kind"] == "command" else text
        paint = style.bold if line["kind"] == "command" else str
        lines += [f"  │ {paint(one)}" for one in told.splitlines() or [""]]
    if change is not None:
        lines += _change(change, style, place=options.get("verb") in CHANGING)
    for file in document.get("diff", ()):
        lines += ["", style.bold(f"{file['status']} {_clean(file['path'])}")]
        lines += [_diff_line(line, style) for line in _clean(file["hunks"]).splitlines()]
    return "\n".join(lines)


def _session(one: Document, style: Style) -> list[str]:
    paint = {"succeeded": style.good, "running": style.bold, "queued": style.dim}.get(one["state"], style.bad)
    detail = one["error"] or one["summary"]
    lines = [f"{style.bold(_clean(one['id']))}  {paint(one['state'])}  {_place(one)}  {_clean(one['sandbox'])}"]
    return [*lines, *(f"    {line}" for line in _clean(detail).splitlines())]


CHANGING = frozenset({"land", "branch", "discard", "undo"})
"""Verbs that may change any repository by an id alone, and so name the one they changed."""


def _change(one: Document, style: Style, *, place: bool = False) -> list[str]:
    paint = style.wants if one["state"] == "waiting" else style.dim
    count = len(one["files"])
    where = f" on {_clean(one['branch'])}" if one["branch"] else ""
    lines = [f"{style.bold(_clean(one['id']))}  {paint(one['state'])}{where}  {_count(count, 'file')}"]
    if place:
        lines[0] += f"  in {_clean(one['workspace'])}"
    for file in one["files"]:
        numbers = "binary" if file["added"] is None else f"+{file['added']} -{file['removed']}"
        lines.append(f"    {file['status']:8} {numbers:>9}  {_clean(file['path'])}")
    if one["state"] == "waiting":
        lines.append(style.dim("    land, branch or discard it"))
    return lines


def _diff_line(line: str, style: Style) -> str:
    paint = {"+": style.good, "-": style.bad, "@": style.dim}.get(line[:1])
    return paint(line) if paint else line


def work(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Sessions and change sets, or one lap."""
    if "sessions" not in document:
        return lap(document, options, style)
    lines = []
    for one in document["sessions"]:
        lines += [*_session(one, style), style.dim(f"    {_clean(one['prompt'])}")]
    if document["changeSets"]:
        lines += ["", style.bold("waiting to land")]
        for change in document["changeSets"]:
            lines += _change(change, style)
    return "\n".join(lines) or _nothing(document.get("elsewhere", {}))


def _nothing(elsewhere: Mapping[str, int]) -> str:
    """That nothing was run here, and where something was."""
    if not elsewhere:
        return "nothing was run yet"
    told = [f"{_count(number, 'session')} in {_clean(path)}" for path, number in list(elsewhere.items())[:3]]
    more = f" and {len(elsewhere) - 3} more" if len(elsewhere) > 3 else ""
    first = shlex.quote(_clean(next(iter(elsewhere))))
    return f"nothing here; {', '.join(told)}{more}\n  `clawpy --workspace {first} work` shows them"


def status(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """State, caps, what waits; or one line for a status bar."""
    if options.get("format") in ("short", "long"):
        return _bar(document, str(options["format"]))
    spent = document["crossPollStatus"]
    held = document["holds"]
    paint = style.bad if held or document["state"] == "DISABLED" else style.good
    since = f"since {_time(document['stateSince'])}, {_clean(document['cause'])}"
    runs = document.get("engine") != "none"
    if runs:
        lines = [f"{paint('●')} {style.bold(document['state'])} {since}"]
    else:
        lines = [
            f"{paint('○')} {style.bold('no engine is running')} (last: {document['state']} {since}); "
            "`clawpy` or `clawpy run` starts one"
        ]
    for hold in held:
        until = f" until {_time(hold['until'])}" if hold["until"] else ""
        told = (
            f"  {style.wants(hold['word'])}{until}: {_clean(hold['reason'])}; `clawpy resume {hold['word']}` lifts it"
        )
        lines.append(told)
    lines.append(
        "  cost  "
        f"hour ${spent['costThisHour']:.2f}/{spent['costCapPerHour']:g}  "
        f"day ${spent['costToday']:.2f}/{spent['costCapPerDay']:g}  "
        f"month ${spent['costThisMonth']:.2f}/{spent['costCapPerMonth']:g}"
    )
    phase = document["phase"]
    lines.append(f"  phase {phase['number']}, {phase['decisions']} decisions; {_clean(phase['reason'])}")
    if document.get("byItself"):
        lines.append(f"  {_clean(document['byItself']['words'])}")
    silent, coming = document["silenceSeconds"], document["nextCycleAt"]
    if runs:
        lines.append(f"  silent for {_span(silent)}" + (f", next cycle {_time(coming)}" if coming else ""))
    lines.append(f"  {_count(document['pending'], 'card')} pending")
    if document["keysInFile"]:
        lines.append(f"  {style.wants(_clean(document['keysInFile']))}")
    lines += _since(document["since"], style, most=5)
    lines += [f"  running  {_clean(one['id'])}  {_clean(one['prompt'])}" for one in document["running"]]
    lines += [f"  {style.wants('waits')}  {_clean(one['id'])}  {_clean(one['title'])}" for one in document["waiting"]]
    for one in document["decisions"]:
        lines.append(style.dim(f"  {_time(one['decidedAt'])}  {one['signal']}  {_clean(one['prompt'])}"))
    return "\n".join(lines)


def _since(then: Document, style: Style, most: int) -> list[str]:
    """What happened since the operator was last away, the last `most` of each; nothing when nothing did."""
    ran, blocked = then["ran"], then["blocked"]
    if not (ran or blocked or then["approved"] or then["rejected"]):
        return []
    itself = f" ({then['approvedByItself']} by itself)" if then["approvedByItself"] else ""
    lines = [
        f"  since {_time(then['at'])}  {_count(len(ran), 'session')}, {len(blocked)} blocked, "
        f"{then['approved']} approved{itself}, {then['rejected']} rejected, ${then['spent']:.2f} spent"
    ]
    if len(ran) > most:
        lines.append(style.dim(f"    and {len(ran) - most} more before; `clawpy work` lists them"))
    for one in ran[-most:]:
        paint = style.good if one["state"] == "succeeded" else style.bad
        lines.append(f"    {_time(one['endedAt'])}  {paint(one['state'])}  {_clean(one['prompt'])}")
    if len(blocked) > most:
        lines.append(style.dim(f"    and {len(blocked) - most} more blocked before"))
    for one in blocked[-most:]:
        rail = f"{style.wants('blocked')} by {_clean(one['rail'])}"
        lines.append(f"    {_time(one['createdAt'])}  {rail}  {_clean(one['prompt'])}: {_clean(one['reason'])}")
    return lines


def _bar(document: Document, form: str) -> str:
    if document["holds"]:
        return f"⏸ {document['holds'][0]['word']}"
    top = document["top"]
    if form == "short" or top is None:
        return f"🔮 {document['pending']}"
    age = datetime.now(UTC) - datetime.fromisoformat(top["createdAt"])
    told = f"{_clean(top['prompt'])} · {_clean(top['targetChannel'])}"
    return f"🔮 {told} · {top['confidence']:.0%} · {_span(age.total_seconds())}"


def dnd(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Until when nobody is disturbed."""
    if document["dndUntil"]:
        return f"{style.wants('do not disturb')} until {_time(document['dndUntil'])}; `clawpy dnd --off` ends it"
    return "do-not-disturb is off" + ("; quiet hours go on" if document["quiet"] else "")


def stop(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """What was stopped."""
    ended = document["stopped"]
    if document["reached"]:
        first = f"stopped; {_count(len(ended), 'session')} ended" if ended else "stopped; nothing was running"
    else:
        first = "stopped; no engine answered, a running one finds the stop file, the next one starts stopped"
    return f"{style.bad('■')} {first}\n  `clawpy resume stop` lifts it"


def agents(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The organisation as a tree with the coding agents, or one agent, or who serves a channel now."""
    if "agents" in document:
        return "\n".join([*_tree(document["agents"], style), *_coding(document.get("coding", []), style)])
    if "channel" in document:
        lines = [f"{_clean(document['channel'])} is served by {_clean(one['title'])}" for one in document["coding"]]
        return "\n".join([*lines, *(f"  log in  {_clean(one['login'])}" for one in document["coding"] if one["login"])])
    one = document["agent"]
    if document.get("retired"):
        return f"{_clean(one['id'])} is retired; its folder is kept"
    lines = [f"{style.bold(_clean(one['id']))}  {_clean(one['title'])}"]
    lines.append(f"  tier {one['tier']}  {style.dim(_clean(one['tierRule']))}")
    if one["broken"]:
        lines.append(f"  {style.bad('broken')}  {_clean(one['broken'])}")
    chain = " → ".join(map(_clean, [one["id"], *document["chain"]]))
    lines.append(f"  {chain}  {style.dim(_clean(document['chainEnd']))}")
    lines += [f"  {word}  {_clean(text)}" for word, text in (("domain", one["domain"]),) if text]
    if one["channels"]:
        lines.append(f"  serves  {', '.join(map(_clean, one['channels']))}")
    if document.get("soul"):
        lines += ["", _clean(document["soul"]).rstrip()]
    return "\n".join(lines)


def guidance(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The block, what of each leader is in it, and what was cut."""
    chain = " → ".join(map(_clean, [document["targetAgent"], *document["chain"]]))
    lines = [f"{chain}  {style.dim(_clean(document['chainEnd']))}"]
    lines.append(f"{document['tokens']} of {document['budget']} tokens" if document["guidance"] else "no guidance")
    if document["reason"]:
        lines.append(f"  {_clean(document['reason'])}")
    for hop in document["hops"]:
        said = f"{hop['tokens']} of {hop['share']} tokens" if hop["kept"] else style.dim(_clean(hop["why"]))
        lines.append(f"  {hop['hop']}  {_clean(hop['leader'])}  {said}")
        lines += [f"     {style.dim('cut')}  {_clean(item['text'])}" for item in hop["cut"]]
    if document["guidance"]:
        lines += ["", _clean(document["guidance"])]
    if document.get("teaching", {}).get("enabled") and document["teaching"]["diff"]:
        lines += ["", style.bold("the next teaching would change soul.md"), _clean(document["teaching"]["diff"])]
    if "moved" in document:
        lines += ["", style.bold("there it would be"), guidance(document["moved"], options, style)]
    return "\n".join(lines)


def bubbles(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """What is on its way up and what the gates said, or what a flush did."""
    if "flushed" in document:
        lines = [f"{_clean(leader)} ← {', '.join(map(_clean, ids))}" for leader, ids in document["flushed"].items()]
        lines = lines or ["nothing was ready to go up"]
        if document["waiting"]:
            lines.append(f"{document['waiting']} wait for the next round")
        if document["cloudSyncFailure"]:
            lines.append(f"{style.bad('not shared yet')}  {_clean(document['cloudSyncFailure'])}")
        return "\n".join(lines)
    lines = []
    for one in document["bubbles"]:
        way = f"{_clean(one['targetAgent'])} → {_clean(one['leader']) or 'nobody'}"
        lines.append(f"{style.bold(_clean(one['id']))}  {one['state']}  {way}  {_clean(one['text'])}")
        last = one["gates"][-1]
        told = f"gate {last['number']}, {last['name']}: {last['reason']}" if one["refusedBy"] else one["pattern"]
        lines += [f"    {style.dim(_clean(told))}"] if told else []
    return "\n".join(lines) or "nobody sent anything up"


def learnings(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """What was learnt in a workspace, or the card that would write it down."""
    if "predictions" in document:
        left = document["leftOut"]
        told = [style.dim(f"{_count(left, 'older one')} left out: a card takes no more")] if left else []
        return "\n".join([cards(document, options, style), *told])
    lines = []
    for one in document["learnings"]:
        lines.append(_clean(one["text"]))
        way = f"{one['targetAgent']} → {one['leader']}, {_time(one['at'])}"
        lines.append("    " + style.dim(_clean(f"{way}  {one['session']}")))
    return "\n".join(lines) or "nothing that was found out here went up yet"


def _coding(agents: Sequence[Document], style: Style) -> list[str]:
    lines = ["", style.bold("coding agents")] if agents else []
    for one in agents:
        name = _clean(one["name"])
        offer = f"install {_clean(one['missing'])}" if one["missing"] else f"clawpy agents serve CHANNEL {name}"
        serves = f"← {', '.join(map(_clean, one['serves']))}" if one["serves"] else style.dim(offer)
        lines.append(f"{name:<12} {_clean(one['title'])}  {serves}")
    return lines


def _tree(agents: Sequence[Document], style: Style) -> list[str]:
    known = {one["id"]: one for one in agents}

    def depth(one: Document) -> int:
        steps, seen = 0, {one["id"]}
        while (one := known.get(one["reportsTo"], {})) and one["id"] not in seen:
            seen.add(one["id"])
            steps += 1
        return steps

    rows = [("  " * depth(one) + _clean(one["id"]), one) for one in agents]
    wide = max((len(name) for name, _ in rows), default=0)
    lines = []
    for name, one in rows:
        channels = f"  ← {', '.join(map(_clean, one['channels']))}" if one["channels"] else ""
        broken = "  " + style.bad(f"broken: {_clean(one['broken'])}") if one["broken"] else ""
        lines.append(f"{one['tier']}  {name:{wide}}  {style.dim(_clean(one['title']))}{channels}{broken}")
    return lines


def tasks(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The board, or one task."""
    found = document["tasks"] if "tasks" in document else [document["task"]]
    signs = {"open": "○", "running": "◐", "done": "✓", "failed": "✗"}
    lines = []
    for one in found:
        note = "  " + style.dim(_clean(one["note"])) if one["note"] else ""
        if one["waitsFor"] and one["state"] == "open":
            note += "  " + style.wants(f"waits for {', '.join(map(_clean, one['waitsFor']))}")
        sign = signs.get(one["state"], "?")
        lines.append(f"{sign} {one['state']:7}  {style.dim(_clean(one['id']))}  {_clean(one['title'])}{note}")
    return "\n".join(lines) or "no tasks"


def permissions(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """What sessions ask for, with the whole of what they want to do."""
    lines = []
    for one in document["permissions"]:
        state = one["answer"] or ("withdrawn" if one["withdrawn"] else f"waits {_span(one['waitedSeconds'])}")
        paint = style.dim if one["answer"] or one["withdrawn"] else style.wants
        lines.append(
            f"{style.bold(_clean(one['id']))}  {paint(state)}  {_clean(one['targetAgent'])}  {_clean(one['title'])}"
        )
        lines.append("    " + style.dim(_clean(one["reason"])))
        if one["detail"] and one["detail"] not in one["title"]:
            lines += [f"    │ {line}" for line in _clean(one["detail"]).splitlines()]
    return "\n".join(lines) or "nobody asks for anything"


def config(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """One setting or all."""
    if "settings" in document:
        return "\n".join([*_flat("", document["settings"]), style.dim(f"# {_clean(document['file'])}")])
    value = "\n".join(_flat(document["key"], document["value"]))
    accepted = "" if options.get("action") == "set" else f"; accepted is {document['accepted']}"
    return f"{value}\n{style.dim(_clean(document['origin']) + accepted)}"


def _flat(key: str, value: Any) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [line for name, each in value.items() for line in _flat(f"{key}.{_quoted(name)}" if key else name, each)]
    shown = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value).replace("'", '"')
    return [f"{_clean(key)} = {_clean(shown)}"]


def _quoted(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() else f'"{name}"'


def check(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The content filter's word."""
    paint = {"allow": style.good, "ask": style.wants}.get(document["verdict"], style.bad)
    reason = f"  {_clean(document['reason'])}" if document["reason"] else ""
    return paint(document["verdict"]) + reason + (f" ({_clean(document['rule'])})" if document["rule"] else "")


def key(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Which keys there are, or what was done with one."""
    if "keys" not in document:
        lines = [_clean(document["message"])]
        if document.get("next"):
            lines += _clean(document["next"]).split("; ")
    else:
        lines = []
        for one in document["keys"]:
            sign = style.good("✓") if one["usable"] else style.dim("-")
            lines.append(f"{sign} {_clean(one['name']):12}  {_clean(one['source'] or one['message'])}")
        lines.append(style.dim(f"keyring: {_clean(document['keyring'])}"))
    if document.get("badge"):
        lines.append(style.wants(f"! {_clean(document['badge'])}"))
    return "\n".join(lines)


def doctor(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Every check, how to mend what is not well, and where things are."""
    signs = {"ok": style.good("✓"), "warn": style.wants("!"), "fail": style.bad("✗")}
    lines = [f"clawpy {document['version']}, Python {document['python']}"]
    for one in document["checks"]:
        told = _clean(one["message"]).replace("\n", "\n               ")
        lines.append(f"{signs[one['state']]} {one['name']:11}  {told}")
        if one["fix"]:
            lines.append("               " + style.dim(_clean(one["fix"])))
    lines += ["", *(style.dim(f"  {name:20} {_clean(path)}") for name, path in document["paths"].items())]
    return "\n".join(lines)


def _place(one: Document) -> str:
    return f"{_clean(PurePath(one['workspace']).name)} → {_clean(one['targetChannel'])}"


def _clean(text: Any) -> str:
    return sanitise(str(text))


def _time(instant: str | None) -> str:
    """An instant in the operator's own time: the hour today, else with the date."""
    if not instant:
        return "now"
    local = datetime.fromisoformat(instant).astimezone()
    return local.strftime("%H:%M" if local.date() == datetime.now().astimezone().date() else "%Y-%m-%d %H:%M")


def _span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def remember(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """How much was remembered; bad lines were told as they came."""
    said = f"{document['remembered']:,} remembered"
    if document["known"]:
        said += f", {document['known']:,} known before"
    if document["badLines"]:
        said += style.wants(f", {document['badLines']:,} lines were not as they should be")
    lines = [f"{said}, {document['seconds']:.1f} s"]
    if document["trouble"]:
        lines.append(style.wants(f"found by words alone: {_clean(document['trouble'])}"))
    elif document["missing"]:
        lines.append(style.dim(f"{document['missing']:,} are found by meaning a little later"))
    return "\n".join(lines)


def recall(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """What was found, each line with its layer, its source and why."""
    lines = []
    for one in document["results"]:
        who = " · ".join(word for word in (one["speaker"], (one["timestamp"] or "")[:10], one["source"]) if word)
        text = _clean(one["text"])
        shown = text if len(text) <= RECALLED_MOST else text[: RECALLED_MOST - 1] + "…"
        lines.append(f"{one['score']:.2f}  {one['layer']}  {shown}")
        lines.append(style.dim(f"         {_clean(who)} | {_clean(one['reason'])}"))
    lines += [style.wants(f"left out: {_clean(words)}") for words in document["leftOut"]]
    return "\n".join(lines) if lines else "nothing is known about it"


def export(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Where what was learnt now lies."""
    what = "pairs" if document["what"] == "dpo" else "conversations"
    lines = [f"{document['records']:,} {what}, {document['new']:,} of them new: {_clean(document['file'])}"]
    if document["weights"]:
        lines.append(style.dim(f"their weights: {_clean(document['weights'])}"))
    return "\n".join(lines)


def train(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The Twin model in use, the runs, and when the next one is due."""
    model = document["twinModel"]
    used = "no Twin model is named" if model is None else f"Twin model {_clean(model)}"
    lines = [used if document["enabled"] or model is None else f"{used}, off: clawpy config set twinModelEnabled true"]
    if "imported" in document:
        lines.append(f"{document['imported']:,} new pairs")
    for run in document["runs"]:
        name = f"{run['id']}  {run['state']:9}  {run['method']}  {run['records']:,} examples  ${run['cost']:.2f}"
        lines += [name, style.dim(f"    {_clean(run['message'])}")]
    return "\n".join([*lines, _clean(document["next"])])


def metrics(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Rates, calibration, trend; sources and channels as tables."""
    days = document["period"].removeprefix("last_").removesuffix("_days")
    decided = f"{document['approved']:,} approved, {document['rejected']:,} dismissed, {document['expired']:,} expired"
    lines = [
        f"last {days} days: {document['totalPredictions']:,} cards, {decided}",
        f"approved {_percent(document['approvalRate'])} ({document['trendDirection']})"
        f" · by itself {document['autoExecuted']:,}, kept {_percent(document['autoSuccessRate'])}"
        f" · an accepted card costs {_price(document['costPerAccepted'])}",
        _clean(document["phaseReason"]),
        _clean(document["calibrationWords"]),
    ]
    if any(one["predictions"] for one in document["calibration"]):
        lines.append("confidence  decided  approved")
    for one in document["calibration"]:
        if one["predictions"]:
            bar = "▇" * round(10 * one["approvalRate"])
            lines.append(f"{one['bucket']:10}  {one['predictions']:7,}  {_percent(one['approvalRate']):>8}  {bar}")
    for what in ("sources", "channels"):
        for one in document[what]:
            rate = f"approved {_percent(one['approvalRate'])}, ${one['costPerAccepted'] or 0:.2f} each"
            lines.append(style.dim(f"{_clean(one['name']):16}  {one['predictions']:5,} cards  {rate}"))
    return "\n".join([*lines, f"training: {_clean(document['nextTraining'])}"])


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.0%}"


def _price(cost: float | None) -> str:
    return "–" if cost is None else f"${cost:.2f}"


RENDER: Mapping[str, Callable[[Document, Mapping[str, Any], Style], str]] = {
    "predict": cards,
    "cards": cards,
    "propose": cards,
    "approve": lap,
    "dismiss": lap,
    "snooze": lap,
    "undo": lap,
    "land": lap,
    "branch": lap,
    "discard": lap,
    "work": work,
    "xray": xray,
    "reply": replied,
    "status": status,
    "resume": status,
    "stop": stop,
    "dnd": dnd,
    "agents": agents,
    "guidance": guidance,
    "bubbles": bubbles,
    "learnings": learnings,
    "permissions": permissions,
    "tasks": tasks,
    "config": config,
    "key": key,
    "remember": remember,
    "recall": recall,
    "drafts": drafts,
    "forget": forget,
    "export": export,
    "metrics": metrics,
    "train": train,
    "check": check,
    "doctor": doctor,
    "simulate": simulation,
}
