"""Output of the verbs on sessions and their changes."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping

from clawpy_console.cli.printing.cards import card_state
from clawpy_console.cli.printing.style import (
    Document,
    Lines,
    bad,
    bold,
    count,
    dim,
    indented,
    paint,
    place,
    session_outcome,
    time,
    wants,
)
from clawpy_console.formats import one_line


def card_with_session(document: Document) -> Lines:
    """A card, its session and its changes."""
    card, session, change = document["prediction"], document["session"], document["changeSet"]
    if card is not None:
        # The session says how it ended, failed tests too.
        session_says = session is not None and card["outcome"] != "discarded"
        snoozed = card["status"] == "pending" and card["snoozedUntil"]
        text = (
            f"snoozed until {time(card['snoozedUntil'])}"
            if snoozed
            else card_state(card, with_outcome=not session_says)
        )
        yield f"{bold(card['id'])}  {text}  {place(card)}"
        yield from indented(card["prompt"])
        if card["note"]:
            yield f"    {card['note']}"
        if card["note"] and card["status"] == "rejected":  # a kind of card was switched off
            yield dim(f"    `clawpy undo {card['id']}` undoes it, `clawpy muted` lists it")
    if session is not None:
        yield from _session(session)
    for line in document.get("transcript", ()):
        sign, tone = ("$ ", "title") if line["kind"] == "command" else ("", "ink")
        yield from (f"  │ {paint(tone, item)}" for item in f"{sign}{line['text']}".splitlines() or [""])
    if change is not None:
        yield from _change(change)
    for file in document.get("diff", ()):
        yield from ("", bold(f"{file['status']} {file['path']}"))
        numbers = (number for number in itertools.count(1) if number not in file["landedHunks"])
        for line in file["hunks"].split("\n"):
            number = f"  hunk {next(numbers)}" if line.startswith("@@ ") else ""
            yield paint({"+": "good", "-": "wrong", "@": "grey"}.get(line[:1], "ink"), line) + number
    if "continues" in document:
        yield f"To send them, approve the card {bold(document['continues']['id'])}."


def _session(session: Document) -> Lines:
    yield f"{bold(session['id'])}  {session_outcome(session)}  {place(session)}  {session['sandbox']}"
    yield from indented(session["error"] or session["summary"])


def _change(change: Document) -> Lines:
    """A change set. Its repository is named once something landed there, because an id alone may lead to any."""
    waiting = change["state"] == "waiting"
    on_branch = f" on {change['branch']}" if change["branch"] else ""
    where_landed = f"  in {change['workspace']}" if change["landedFiles"] or not waiting else ""
    state_text = paint("wants" if waiting else "grey", change["state"])
    yield f"{bold(change['id'])}  {state_text}{on_branch}  {count(len(change['files']), 'file')}{where_landed}"
    for file in change["files"]:
        numbers = "binary" if file["added"] is None else f"+{file['added']} -{file['removed']}"
        yield f"    {file['status']:8} {numbers:>9}  {file['path']}"
        if file["refused"]:
            yield bad(f"      ✗ cannot be landed: {file['refused']}")
        if file["note"]:
            yield wants(f"      ▲ {file['note']}")
    for comment in change["comments"]:
        before, sent = " before" if comment["old"] else "", "  (sent)" if comment["sent"] else ""
        yield f"    comment {comment['number']} on {comment['path']}:{comment['line']}{before}{sent}"
        yield dim(f"      > {comment['quote']}")
        yield from indented(comment["text"])
    if waiting:
        landed = f"{count(change['landedFiles'], 'file')} landed; for the rest: " if change["landedFiles"] else ""
        yield dim(f"    {landed}land, branch or discard it")


def work(document: Document) -> Lines:
    """Sessions and changes, or one of them."""
    if "sessions" not in document:
        yield from card_with_session(document)
        return
    for session in document["sessions"]:
        yield from _session(session)
        yield dim(f"    {one_line(session['prompt'])}")
    if document["changeSets"]:
        yield from ("", bold("changes to land"))
    for change in document["changeSets"]:
        yield from _change(change)
    if not document["sessions"] and not document["changeSets"]:
        yield _nothing_here(document.get("elsewhere", {}))


def _nothing_here(elsewhere: Mapping[str, int]) -> str:
    """That no session ran here, and where some did."""
    if not elsewhere:
        return "Nothing has run yet."
    listed = [f"{count(number, 'session')} in {path}" for path, number in list(elsewhere.items())[:3]]
    more = f" and {len(elsewhere) - 3} more" if len(elsewhere) > 3 else ""
    first = shlex.quote(next(iter(elsewhere)))
    return f"Nothing has run here; {', '.join(listed)}{more}.\n  `clawpy --workspace {first} work` shows them"


def reply(document: Document) -> Lines:
    """That the message was sent."""
    yield f"sent to {document['session']['id']}; it reads the message at its next turn"
