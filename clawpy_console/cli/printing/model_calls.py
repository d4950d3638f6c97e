"""Output of `clawpy xray`: the model calls of a session, and the prompt of one call."""

from __future__ import annotations

from clawpy_console.cli.printing.style import (
    Document,
    Lines,
    bad,
    bold,
    count,
    dim,
    paint,
    wants,
)

SOURCE_CELLS = 14
"""Columns for the source of a line of a prompt."""

TRUST_CELLS = 15
"""Columns for the trust in the line."""


def xray(document: Document) -> Lines:
    """The model calls of a session, or one call with its prompt."""
    session, name = document["session"], document["id"]
    yield f"{bold(name)}  {session['prompt'] if session else 'what to keep of the day'}"
    if "call" in document:
        yield from _call_with_prompt(document)
    elif document["calls"]:
        yield from (f"  {number:>3}  {_call_line(call)}" for number, call in enumerate(document["calls"], 1))
        yield dim(f"  `clawpy xray {name} --call 1` shows what was sent")
    else:
        yield dim(f"  {_no_call(session)}")


def _no_call(session: Document | None) -> str:
    if session is None:
        return "no calls: no model is set in `[memory] model`, or that day is not over"
    if session["flow"]:
        return "no model calls: a flow runs without a model"
    return "no model calls" if session["state"] not in ("queued", "running") else "no model calls yet"


def _call_line(call: Document) -> str:
    tone = {"done": "good", "running": "wants"}.get(call["state"], "wrong")
    cost = f"{'' if call['priceKnown'] else '~'}${call['cost']:.4f}"
    took = "" if call["seconds"] is None else f"  {call['seconds']:.1f} s"
    figures = f"{call['inputTokens']:,} → {call['outputTokens']:,} tokens  {cost}{took}"
    error = f"  {call['error']}" if call["error"] else ""
    return f"{call['model']:24}  {paint(tone, call['state'])}  {dim(figures)}{error}"


def _call_with_prompt(document: Document) -> Lines:
    yield f"  {_call_line(document['call'])}"
    yield from (f"  {wants('!')} {note}" for note in document["call"]["notes"])
    for part in document["prompt"]:
        yield from ("", dim(f"{part['role']} · {part['name']} · ~{count(part['tokens'], 'token')}"))
        before = None
        for line in part["lines"]:
            source = line["label"] or line["source"]
            label = source if source != before else ""
            before = source
            lead = dim(f"{label[:SOURCE_CELLS]:>{SOURCE_CELLS}} {line['trust']:{TRUST_CELLS}} │")
            hostile = bad(f"▲ hostile, {line['hostile']}: ") if line["hostile"] else ""
            yield f"{lead} {hostile}{line['text']}"
    if reply := document["reply"].rstrip("\n"):
        yield from ("", dim("answered"))
        yield from (f"{'':>{SOURCE_CELLS + 1 + TRUST_CELLS}} │ {line}" for line in reply.split("\n"))
