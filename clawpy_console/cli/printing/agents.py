"""What the verbs of agents, of what they learn, and of tasks and permissions print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from clawpy_console.cli.printing.style import Document, Style, clean, count, printed, span
from clawpy_console.fields import Field
from clawpy_console.screens.hierarchy import agent as told


def agents(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The organisation as a tree with the coding agents, or one agent, or who serves a channel now."""
    if "agents" in document:
        left = ", ".join(map(clean, document.get("retired", ())))
        gone = [style.dim(f"retired: {left}; `clawpy agents restore` restores one")] if left else []
        wrong = printed(told.problems(document["problems"]), style) if document["problems"] else []
        return "\n".join([*_tree(document["agents"], style), *_coding(document, style), *gone, *wrong])
    if "channel" in document:
        lines = [f"{clean(document['channel'])} is served by {clean(one['title'])}" for one in document["coding"]]
        return "\n".join([*lines, *(f"  log in  {clean(one['login'])}" for one in document["coding"] if one["login"])])
    return "\n".join(printed(told.agent(document), style))


def guidance(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The guidance of an agent, of each leader how much, what was left out; or what another leader would change."""
    title = Field("", f"{document['targetAgent']} → {told.chain(document)}", "title")
    if "moved" in document:
        return "\n".join(printed([title, *told.moved(document)], style))
    lines = printed([title, *told.guidance(document)], style)
    lines += ["", clean(document["guidance"])] if document["guidance"] else []
    teaching = document["teaching"]
    if teaching["enabled"] and teaching["diff"]:
        lines += printed(told.teaching(teaching, datetime.now().astimezone()), style)
    return "\n".join(lines)


def profile(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The guidance of a leader as a text, or whose prompts another text changes."""
    if document.get("undone"):
        return f"The guidance from {clean(document['leader'])} is as it was before the last save."
    if "edits" not in document:
        return clean(document["text"]).rstrip()
    lines = printed(told.edited(document), style)
    if document["saved"]:
        lines += ["", f"Saved. Undo: clawpy profile {clean(document['leader'])} --undo"]
    elif document["edits"]:
        lines += ["", f"Not saved. Add `{style.bold('--yes')}` to save it."]
    return "\n".join(lines)


def bubbles(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Findings and what the gates said, or what was sent up."""
    if "flushed" in document:
        lines = [f"{clean(leader)} ← {', '.join(map(clean, ids))}" for leader, ids in document["flushed"].items()]
        lines = lines or ["Nothing was ready to be sent up."]
        if document["waiting"]:
            lines.append(f"{count(document['waiting'], 'finding')} for the next round")
        if document["cloudSyncFailure"]:
            lines.append(f"{style.bad('not shared yet')}  {clean(document['cloudSyncFailure'])}")
        return "\n".join(lines)
    lines, now = [], datetime.now().astimezone()
    for one in document["bubbles"]:
        refused = [told.gate(one["gates"][-1])] if one["refusedBy"] else []
        lines += printed([Field("", f"{one['id']}  {one['text']}", "title"), *told.standing(one, now), *refused], style)
    return "\n".join(lines) or "No findings yet."


def _coding(document: Document, style: Style) -> list[str]:
    lines = ["", style.bold("coding agents")]
    agents = document.get("coding", [])
    if not agents:
        looked = ", ".join(document.get("codingSupported", []))
        lines.append(style.dim(f"None is installed here. Supported: {looked}"))
    for one in agents:
        name = clean(one["name"])
        missing = f"its adapter is missing: {clean(one['missing'])}"
        offer = missing if one["missing"] else f"clawpy agents serve CHANNEL {name}"
        serves = f"← {', '.join(map(clean, one['serves']))}" if one["serves"] else style.dim(offer)
        lines.append(f"{name:<12} {clean(one['title'])}  {serves}")
    return lines


def _tree(agents: Sequence[Document], style: Style) -> list[str]:
    known = {one["id"]: one for one in agents}

    def depth(one: Document) -> int:
        steps, seen = 0, {one["id"]}
        while (one := known.get(one["reportsTo"], {})) and one["id"] not in seen:
            seen.add(one["id"])
            steps += 1
        return steps

    rows = [("  " * depth(one) + clean(one["id"]), one) for one in agents]
    wide = max((len(name) for name, _ in rows), default=0)
    lines = []
    for name, one in rows:
        channels = f"  ← {', '.join(map(clean, one['channels']))}" if one["channels"] else ""
        broken = "  " + style.bad(f"broken: {clean(one['broken'])}") if one["broken"] else ""
        lines.append(f"{one['tier']}  {name:{wide}}  {style.dim(clean(one['title']))}{channels}{broken}")
    return lines


def tasks(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The board, or one task."""
    found = document["tasks"] if "tasks" in document else [document["task"]]
    signs = {"open": "○", "running": "◐", "done": "✓", "failed": "✗"}
    lines = []
    for one in found:
        note = "  " + style.dim(clean(one["note"])) if one["note"] else ""
        if one["waitsFor"] and one["state"] == "open":
            note += "  " + style.wants(f"waits for {', '.join(map(clean, one['waitsFor']))}")
        sign = signs.get(one["state"], "?")
        lines.append(f"{sign} {one['state']:7}  {style.dim(clean(one['id']))}  {clean(one['title'])}{note}")
    return "\n".join(lines) or "No tasks."


def permissions(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """What sessions ask for, with the whole of what they want to do."""
    lines = []
    for one in document["permissions"]:
        state = one["answer"] or ("withdrawn" if one["withdrawn"] else f"waits {span(one['waitedSeconds'])}")
        paint = style.dim if one["answer"] or one["withdrawn"] else style.wants
        lines.append(
            f"{style.bold(clean(one['id']))}  {paint(state)}  {clean(one['targetAgent'])}  {clean(one['title'])}"
        )
        lines.append("    " + style.dim(clean(one["reason"])))
        if one["detail"] and one["detail"] not in one["title"]:
            lines += [f"    │ {line}" for line in clean(one["detail"]).splitlines()]
    return "\n".join(lines) or "No permission requests."
