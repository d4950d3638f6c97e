"""What the verbs of agents, of what they learn, and of tasks and permissions print."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from clawpy_console.cli.printing.style import (
    Document,
    Lines,
    bad,
    bold,
    count,
    dim,
    paint,
    printed,
    span,
    wants,
)
from clawpy_console.fields import Field
from clawpy_console.screens.hierarchy import agent as told


def agents(document: Document) -> Lines:
    """The organisation as a tree with the coding agents, or one agent, or who serves a channel now."""
    if "agents" in document:
        yield from _tree(document["agents"])
        yield from _coding(document)
        if retired := document.get("retired"):
            yield dim(f"retired: {', '.join(retired)}; `clawpy agents restore` restores one")
        yield from printed(told.problems(document["problems"])) if document["problems"] else ()
    elif "channel" in document:
        yield from (f"{document['channel']} is served by {one['title']}" for one in document["coding"])
        yield from (f"  log in  {one['login']}" for one in document["coding"] if one["login"])
    else:
        yield from printed(told.agent(document))


def guidance(document: Document) -> Lines:
    """The guidance of an agent, of each leader how much, what was left out; or what another leader would change."""
    title = Field("", f"{document['targetAgent']} → {told.chain(document)}", "title")
    if "moved" in document:
        yield from printed([title, *told.moved(document)])
        return
    yield from printed([title, *told.guidance(document)])
    if document["guidance"]:
        yield from ("", document["guidance"])
    teaching = document["teaching"]
    if teaching["enabled"] and teaching["diff"]:
        yield from printed(told.teaching(teaching, datetime.now().astimezone()))


def profile(document: Document) -> Lines:
    """The guidance of a leader as a text, or whose prompts another text changes."""
    if document.get("undone"):
        yield f"The guidance from {document['leader']} is as it was before the last save."
    elif "edits" not in document:
        yield document["text"].rstrip()
    else:
        yield from printed(told.edited(document))
        if document["saved"]:
            yield f"\nSaved. Undo: clawpy profile {document['leader']} --undo"
        elif document["edits"]:
            yield f"\nNot saved. Add `{bold('--yes')}` to save it."


def bubbles(document: Document) -> Lines:
    """Findings and what the gates said, or what was sent up."""
    if "flushed" in document:
        yield from (f"{leader} ← {', '.join(ids)}" for leader, ids in document["flushed"].items())
        if not document["flushed"]:
            yield "Nothing was ready to be sent up."
        if document["waiting"]:
            yield f"{count(document['waiting'], 'finding')} for the next round"
        if document["cloudSyncFailure"]:
            yield f"{bad('not shared yet')}  {document['cloudSyncFailure']}"
        return
    now = datetime.now().astimezone()
    for one in document["bubbles"]:
        refused = [told.gate(one["gates"][-1])] if one["refusedBy"] else []
        yield from printed([Field("", f"{one['id']}  {one['text']}", "title"), *told.standing(one, now), *refused])


def _coding(document: Document) -> Lines:
    yield from ("", bold("coding agents"))
    agents = document.get("coding", [])
    if not agents:
        yield dim(f"None is installed here. Supported: {', '.join(document.get('codingSupported', []))}")
    for one in agents:
        missing = f"its adapter is missing: {one['missing']}"
        offer = missing if one["missing"] else f"clawpy agents serve CHANNEL {one['name']}"
        serves = f"← {', '.join(one['serves'])}" if one["serves"] else dim(offer)
        yield f"{one['name']:<12} {one['title']}  {serves}"


def _tree(agents: Sequence[Document]) -> Lines:
    known = {one["id"]: one for one in agents}

    def depth(one: Document) -> int:
        steps, seen = 0, {one["id"]}
        while (one := known.get(one["reportsTo"], {})) and one["id"] not in seen:
            seen.add(one["id"])
            steps += 1
        return steps

    rows = [("  " * depth(one) + one["id"], one) for one in agents]
    wide = max((len(name) for name, _ in rows), default=0)
    for name, one in rows:
        channels = f"  ← {', '.join(one['channels'])}" if one["channels"] else ""
        broken = "  " + bad(f"broken: {one['broken']}") if one["broken"] else ""
        yield f"{one['tier']}  {name:{wide}}  {dim(one['title'])}{channels}{broken}"


def tasks(document: Document) -> Lines:
    """The board, or one task."""
    found = document["tasks"] if "tasks" in document else [document["task"]]
    signs = {"open": "○", "running": "◐", "done": "✓", "failed": "✗"}
    for one in found:
        note = "  " + dim(one["note"]) if one["note"] else ""
        if one["waitsFor"] and one["state"] == "open":
            note += "  " + wants(f"waits for {', '.join(one['waitsFor'])}")
        yield f"{signs[one['state']]} {one['state']:7}  {dim(one['id'])}  {one['title']}{note}"


def permissions(document: Document) -> Lines:
    """What sessions ask for, with the whole of what they want to do."""
    for one in document["permissions"]:
        state = one["answer"] or ("withdrawn" if one["withdrawn"] else f"waits {span(one['waitedSeconds'])}")
        tone = "grey" if one["answer"] or one["withdrawn"] else "wants"
        yield f"{bold(one['id'])}  {paint(tone, state)}  {one['targetAgent']}  {one['title']}"
        yield "    " + dim(one["reason"])
        if one["detail"] and one["detail"] not in one["title"]:
            yield from (f"    │ {line}" for line in one["detail"].splitlines())
