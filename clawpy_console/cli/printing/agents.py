"""Output of the verbs on agents, guidance, findings, tasks and permissions."""

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
    field_lines,
    paint,
    span,
    wants,
)
from clawpy_console.fields import Field
from clawpy_console.fields import agent as agent_fields


def agents(document: Document) -> Lines:
    """The tree of agents with the coding agents, or one agent, or who serves a channel now."""
    if "agents" in document:
        yield from _tree(document["agents"])
        yield from _coding(document)
        if retired := document.get("retired"):
            yield dim(f"retired: {', '.join(retired)}; `clawpy agents restore` restores one")
        yield from field_lines(agent_fields.problem_fields(document["problems"])) if document["problems"] else ()
    elif "channel" in document:
        yield from (f"{document['channel']} is served by {agent['title']}" for agent in document["coding"])
        yield from (f"  log in  {agent['login']}" for agent in document["coding"] if agent["login"])
    else:
        yield from field_lines(agent_fields.agent_fields(document))


def guidance(document: Document) -> Lines:
    """The guidance of an agent by leader, and what was left out; or what another leader would change."""
    title = Field("", f"{document['targetAgent']} → {agent_fields.chain(document)}", "title")
    if "moved" in document:
        yield from field_lines([title, *agent_fields.moved_fields(document)])
        return
    yield from field_lines([title, *agent_fields.guidance_fields(document)])
    if document["guidance"]:
        yield from ("", document["guidance"])
    teaching = document["teaching"]
    if teaching["enabled"] and teaching["diff"]:
        yield from field_lines(agent_fields.teaching_fields(teaching, datetime.now().astimezone()))


def profile(document: Document) -> Lines:
    """The profile of a leader as text, or the prompts that an edited one changes."""
    if document.get("undone"):
        yield f"The guidance from {document['leader']} is as it was before the last save."
    elif "edits" not in document:
        yield document["text"].rstrip()
    else:
        yield from field_lines(agent_fields.edited_fields(document))
        if document["saved"]:
            yield f"\nSaved. Undo: clawpy profile {document['leader']} --undo"
        elif document["edits"]:
            yield f"\nNot saved. Add `{bold('--yes')}` to save it."


def bubbles(document: Document) -> Lines:
    """Findings with the verdict of the gates, or what was sent up."""
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
    for bubble in document["bubbles"]:
        refused = [agent_fields.gate_field(bubble["gates"][-1])] if bubble["refusedBy"] else []
        yield from field_lines(
            [
                Field("", f"{bubble['id']}  {bubble['text']}", "title"),
                *agent_fields.finding_state_fields(bubble, now),
                *refused,
            ]
        )


def _coding(document: Document) -> Lines:
    yield from ("", bold("coding agents"))
    agents = document.get("coding", [])
    if not agents:
        yield dim(f"None is installed here. Supported: {', '.join(document.get('codingSupported', []))}")
    for agent in agents:
        missing = f"its adapter is missing: {agent['missing']}"
        offer = missing if agent["missing"] else f"clawpy agents serve CHANNEL {agent['name']}"
        serves = f"← {', '.join(agent['serves'])}" if agent["serves"] else dim(offer)
        yield f"{agent['name']:<12} {agent['title']}  {serves}"


def _tree(agents: Sequence[Document]) -> Lines:
    by_id = {agent["id"]: agent for agent in agents}

    def depth(agent: Document) -> int:
        steps, visited = 0, {agent["id"]}
        while (agent := by_id.get(agent["reportsTo"], {})) and agent["id"] not in visited:
            visited.add(agent["id"])
            steps += 1
        return steps

    rows = [("  " * depth(agent) + agent["id"], agent) for agent in agents]
    wide = max((len(name) for name, _ in rows), default=0)
    for name, row in rows:
        channels = f"  ← {', '.join(row['channels'])}" if row["channels"] else ""
        broken = "  " + bad(f"broken: {row['broken']}") if row["broken"] else ""
        yield f"{row['tier']}  {name:{wide}}  {dim(row['title'])}{channels}{broken}"


def tasks(document: Document) -> Lines:
    """The task board, or one task."""
    board = document["tasks"] if "tasks" in document else [document["task"]]
    signs = {"open": "○", "running": "◐", "done": "✓", "failed": "✗"}
    for task in board:
        note = "  " + dim(task["note"]) if task["note"] else ""
        if task["waitsFor"] and task["state"] == "open":
            note += "  " + wants(f"waits for {', '.join(task['waitsFor'])}")
        yield f"{signs[task['state']]} {task['state']:7}  {dim(task['id'])}  {task['title']}{note}"


def permissions(document: Document) -> Lines:
    """Permission requests with their whole detail."""
    for request in document["permissions"]:
        state = request["answer"] or (
            "withdrawn" if request["withdrawn"] else f"waits {span(request['waitedSeconds'])}"
        )
        tone = "grey" if request["answer"] or request["withdrawn"] else "wants"
        yield f"{bold(request['id'])}  {paint(tone, state)}  {request['targetAgent']}  {request['title']}"
        yield "    " + dim(request["reason"])
        if request["detail"] and request["detail"] not in request["title"]:
            yield from (f"    │ {line}" for line in request["detail"].splitlines())
