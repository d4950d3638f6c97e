"""What the verbs of agents, of what they learn, and of tasks and permissions print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clawpy_console.cli.printing.style import Document, Style, clean, count, span
from engine.values.wisdom import telling


def agents(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The organisation as a tree with the coding agents, or one agent, or who serves a channel now."""
    if "agents" in document:
        left = ", ".join(map(clean, document.get("retired", ())))
        gone = [style.dim(f"retired: {left}; `clawpy agents restore` brings one back")] if left else []
        return "\n".join([*_tree(document["agents"], style), *_coding(document, style), *gone])
    if "channel" in document:
        lines = [f"{clean(document['channel'])} is served by {clean(one['title'])}" for one in document["coding"]]
        return "\n".join([*lines, *(f"  log in  {clean(one['login'])}" for one in document["coding"] if one["login"])])
    one = document["agent"]
    if document.get("retired"):
        return f"{clean(one['id'])} is retired; its folder is kept"
    lines = [f"{style.bold(clean(one['id']))}  {clean(one['title'])}"]
    lines.append(f"  tier {one['tier']}  {style.dim(clean(one['tierRule']))}")
    if one["broken"]:
        lines.append(f"  {style.bad('broken')}  {clean(one['broken'])}")
    chain = " → ".join(map(clean, [one["id"], *document["chain"]]))
    lines.append(f"  {chain}  {style.dim(clean(document['chainEnd']))}")
    lines += [f"  {word}  {clean(text)}" for word, text in (("domain", one["domain"]),) if text]
    if one["channels"]:
        lines.append(f"  serves  {', '.join(map(clean, one['channels']))}")
    if document.get("soul"):
        lines += ["", clean(document["soul"]).rstrip()]
    return "\n".join(lines)


def guidance(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The block, what of each leader is in it, and what was cut."""
    chain = " → ".join(map(clean, [document["targetAgent"], *document["chain"]]))
    lines = [f"{chain}  {style.dim(clean(document['chainEnd']))}"]
    lines.append(f"{document['tokens']} of {document['budget']} tokens" if document["guidance"] else "no guidance")
    if document["reason"]:
        lines.append(f"  {clean(document['reason'])}")
    for hop in document["hops"]:
        said = f"{hop['tokens']} of {hop['share']} tokens" if hop["kept"] else style.dim(clean(hop["why"]))
        lines.append(f"  {hop['hop']}  {clean(hop['leader'])}  {said}")
        lines += [f"     {style.dim('cut')}  {clean(item['text'])}" for item in hop["cut"]]
    if document["guidance"]:
        lines += ["", clean(document["guidance"])]
    if document.get("teaching", {}).get("enabled") and document["teaching"]["diff"]:
        lines += ["", style.bold("the next teaching would change soul.md"), clean(document["teaching"]["diff"])]
    if "moved" in document:
        lines += ["", style.bold("there it would be"), guidance(document["moved"], options, style)]
    return "\n".join(lines)


def profile(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The guidance of a leader as a text, or whose prompts another text changes."""
    if "edits" not in document:
        return clean(document["text"]).rstrip()
    if not document["edits"]:
        return f"nothing has changed in the guidance from {clean(document['leader'])}"
    lines = [count(len(document["edits"]), "change") + (", saved" if document["saved"] else ", not saved yet")]
    for one in document["prompts"]:
        lines += ["", style.bold(", ".join(map(clean, one["agents"])))]
        lines += [(style.good if line[0] == "+" else style.bad)(clean(line)) for line in one["changes"]]
    if not document["prompts"]:
        lines.append("no prompt changes: it guides nobody, or the budget for guidance is used up")
    return "\n".join(lines if document["saved"] else [*lines, "", f"`{style.bold('--yes')}` saves it"])


def bubbles(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """What is on its way up and what the gates said, or what a flush did."""
    if "flushed" in document:
        lines = [f"{clean(leader)} ← {', '.join(map(clean, ids))}" for leader, ids in document["flushed"].items()]
        lines = lines or ["Nothing was ready to be sent up."]
        if document["waiting"]:
            lines.append(f"for the next round: {document['waiting']}")
        if document["cloudSyncFailure"]:
            lines.append(f"{style.bad('not shared yet')}  {clean(document['cloudSyncFailure'])}")
        return "\n".join(lines)
    lines = []
    for one in document["bubbles"]:
        way = f"{clean(one['targetAgent'])} → {clean(one['leader']) or 'nobody'}"
        trust = style.dim(f"[{clean(one['trust'])}]")
        lines.append(f"{style.bold(clean(one['id']))}  {one['state']}  {way}  {trust} {clean(one['text'])}")
        last = one["gates"][-1]
        named = one["pattern"] if telling(one["pattern"]) else f"a pattern of {one['leader']}"
        arrived = f"as {named}" if one["pattern"] else ""
        told = f"gate {last['number']}, {last['name']}: {last['reason']}" if one["refusedBy"] else arrived
        lines += [f"    {style.dim(clean(told))}"] if told else []
    return "\n".join(lines) or "No findings yet."


def _coding(document: Document, style: Style) -> list[str]:
    lines = ["", style.bold("coding agents")]
    agents = document.get("coding", [])
    if not agents:
        looked = ", ".join(document.get("codingSupported", []))
        lines.append(style.dim(f"none is installed here; looked for {looked}"))
    for one in agents:
        name = clean(one["name"])
        offer = (
            f"lacks its adapter: {clean(one['missing'])}" if one["missing"] else f"clawpy agents serve CHANNEL {name}"
        )
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
    return "\n".join(lines) or "no tasks"


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
