"""What `clawpy xray` prints: a session's calls, and the prompt of one with the source of each line in a gutter."""

from __future__ import annotations

from clawpy_console.cli.printing.style import Document, Lines, bad, bold, count, dim, paint, wants

GUTTER = 14
TRUST = 15
"""Cells for a source, and for how far its lines may be followed."""


def xray(document: Document) -> Lines:
    """The list of calls, or one call whole."""
    session, name = document["session"], document["id"]
    yield f"{bold(name)}  {session['prompt'] if session else 'what to keep of the day'}"
    if "call" in document:
        yield from _whole(document)
    elif document["calls"]:
        yield from (f"  {number:>3}  {_call(call)}" for number, call in enumerate(document["calls"], 1))
        yield dim(f"  `clawpy xray {name} --call 1` shows what was sent")
    else:
        yield dim(f"  {_no_call(session)}")


def _no_call(session: Document | None) -> str:
    if session is None:
        return "no calls: no model is set in `[memory] model`, or that day is not over"
    if session["flow"]:
        return "no model calls: a flow runs without a model"
    return "no model calls" if session["state"] not in ("queued", "running") else "no model calls yet"


def reply(document: Document) -> Lines:
    """That it was told."""
    yield f"sent to {document['session']['id']}; it reads the message at its next turn"


def _call(call: Document) -> str:
    tone = {"done": "good", "running": "wants"}.get(call["state"], "wrong")
    cost = f"{'' if call['priceKnown'] else '~'}${call['cost']:.4f}"
    took = "" if call["seconds"] is None else f"  {call['seconds']:.1f} s"
    figures = f"{call['inputTokens']:,} → {call['outputTokens']:,} tokens  {cost}{took}"
    error = f"  {call['error']}" if call["error"] else ""
    return f"{call['model']:24}  {paint(tone, call['state'])}  {dim(figures)}{error}"


def _whole(document: Document) -> Lines:
    yield f"  {_call(document['call'])}"
    yield from (f"  {wants('!')} {note}" for note in document["call"]["notes"])
    for part in document["prompt"]:
        yield from ("", dim(f"{part['role']} · {part['name']} · ~{count(part['tokens'], 'token')}"))
        before = None
        for line in part["lines"]:
            source = line["label"] or line["source"]
            shown = source if source != before else ""
            before = source
            lead = dim(f"{shown[:GUTTER]:>{GUTTER}} {line['trust']:{TRUST}} │")
            hostile = bad(f"▲ hostile, {line['hostile']}: ") if line["hostile"] else ""
            yield f"{lead} {hostile}{line['text']}"
    if reply := document["reply"].rstrip("\n"):
        yield from ("", dim("answered"))
        yield from (f"{'':>{GUTTER + 1 + TRUST}} │ {line}" for line in reply.split("\n"))
