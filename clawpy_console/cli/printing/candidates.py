"""What `clawpy candidates` prints: proposed changes of behaviour, their evidence, what would change."""

from __future__ import annotations

from datetime import UTC, datetime

from clawpy_console.cli.printing.style import Document, Lines, bold, count, dim, paint, printed, wants
from clawpy_console.screens.learning import candidate

NEXT = {
    "promoted": "`clawpy candidates rollback {id}` rolls it back",
    "rejected": "It is proposed again only if new evidence outweighs your decision.",
    "rolled_back": "`clawpy candidates approve {id}` activates it again",
}


def candidates(document: Document) -> Lines:
    """A list, one with all about it, what became of one, what a check found, or records."""
    if "candidates" in document:
        yield from _list(document)
    elif "drafted" in document:
        yield from map(_head, document["drafted"])
        if not document["drafted"]:
            yield "Nothing new was found."
        yield from (dim(f"not drafted: {key}: {why}") for key, why in document["notDrafted"].items())
    elif "candidate" in document:
        one = document["candidate"]
        yield _head(one)
        if "stations" in document:
            yield from _whole(document)
        if one["status"] in NEXT:
            yield dim(NEXT[one["status"]].format(id=one["id"]))
    else:
        yield from _records(document["records"])
        if not document["records"]:
            yield "Nothing was recorded yet."


def _records(records: list[Document]) -> Lines:
    now = datetime.now(UTC)
    for one in records:
        yield from printed(candidate.record(one, now))


def _whole(document: Document) -> Lines:
    _, *fields = candidate.candidate(document, datetime.now(UTC))
    yield from printed(fields)
    for name, title in candidate.EVIDENCE.items():
        if records := [each for each in document["records"] if each["id"] in document["candidate"][name]]:
            yield from ("", bold(title), *_records(records))


def _list(document: Document) -> Lines:
    """Those that need your decision first."""
    for one in sorted(document["candidates"], key=lambda one: one["status"] != "review"):
        yield _head(one)
        yield "    " + dim(f"{candidate.TYPES[one['type']][1]}, for {candidate.where(one)}; {candidate.evidence(one)}")
    if not document["candidates"]:
        known = document["records"]
        said = f"{count(known, 'record')}, none calls for a change" if known else "nothing was recorded yet"
        yield f"No candidates: {said}. `clawpy candidates digest` checks now, instead of within ten minutes."
        return
    if waiting := document["counts"]["review"]:
        told = "`clawpy candidates show ID` shows one, `approve ID` and `reject ID` decide"
        yield dim(f"{waiting} need{'s' if waiting == 1 else ''} your decision: {told}")
    if document["mode"] == "autonomous":
        yield wants("adaptation.mode is autonomous: candidates with enough evidence become active")


def _head(one: Document) -> str:
    sign, tone, said = candidate.STATUS[one["status"]]
    return f"{bold(one['id'])}  {paint(tone, f'{sign} {said}')}  score {one['score']:.0f}  {one['title']}"
