"""Output of the verbs on work: the cards and tasks that it comes from, its sessions with their changes and model calls,
and the permissions that they ask for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta

from clawpy_console.cli.printing import (
    Lines,
    bad,
    bold,
    dim,
    format_place,
    format_problems,
    format_time,
    indent_lines,
    is_future,
    paint,
    paint_session_outcome,
    wants,
)
from clawpy_console.fields import Document
from clawpy_console.fields import cards as card_fields
from clawpy_console.formats import count, one_line, short_span, workspace_name
from engine.model import LEFT_OUT, NO_SANDBOX_WARNING, label_outcome


def format_cards(document: Document) -> Lines:
    """Pending cards, or the latest of any status."""
    found_cards, errors = document["predictions"], document.get("errors", ())
    if not found_cards:
        elsewhere = [f"{number} in {path}" for path, number in document.get("elsewhere", {}).items()]
        message = f"No cards here; {', '.join(elsewhere)}." if elsewhere else "No cards."
        gives_advice = not (elsewhere or "created" in document)  # `clawpy predict` has just checked
        yield f"{message} `clawpy predict` checks for new ones." if gives_advice else message
        yield from format_problems(
            problem
            for problem in document.get("problems", ())
            if not any(problem["text"] in error for error in errors)  # which are shown below
        )
    for card in found_cards:
        yield from _format_card(card)
    yield from (dim(f"! {error}") for error in errors)


def _format_card(card: Document) -> Lines:
    """A card: its head with badges, its prompt and its reasons; while it is pending also its work and the rails."""
    is_pending = card["status"] == "pending"
    confidence_text = describe_tier(card)
    head = f"{bold(card['id'])}  {bad(confidence_text) if card['tier'] == 1 else confidence_text}  {format_place(card)}"
    badges = " ".join(_collect_badges(card))
    yield head + ("  " + wants(badges) if badges else "")
    if is_pending and card["withoutSandbox"]:
        advice = "approve it with --without-sandbox" if card["needsConfirmation"] else "the settings allow that here"
        yield "    " + wants(f"{NO_SANDBOX_WARNING}; {advice}")
    yield from indent_lines(card["prompt"])
    if card["reasoning"]:
        yield from (f"    {dim(line)}" for line in card["reasoning"].splitlines())
    if is_pending:
        yield "    " + _describe_run(card)
        for verdict in card["verdicts"]:
            # That a person decides is what a card is for.
            if verdict["verdict"] != "allow" and verdict["rail"] != "gate":
                yield f"    {wants(verdict['verdict'])} {verdict['rail']}: {verdict['reason']}"
    if card["note"]:
        yield f"    {card['note']}"


def _collect_badges(card: Document) -> Iterator[str]:
    """The words beside the head of a card, such as `NEW`."""
    if card["stated"] and card["band"] in ("suggested", "act"):
        yield "SUGGESTED"
    if card["status"] != "pending":
        yield describe_card_state(card)
        return
    if card["novel"] and card["stated"]:
        yield "NEW"
    if is_future(card["snoozedUntil"]):
        yield f"snoozed until {format_time(card['snoozedUntil'])}"


def _describe_run(card: Document) -> str:
    """The cost, the changes and the runner of a pending card; or that it cannot run, if nothing is known of them."""
    if not card["undoNote"]:
        return wants(card_fields.explain_cannot_run(card["flow"]))
    cost = [f"est. ${card['estimatedCost']:.2f}"] if card["estimatedCost"] else []
    changes = card_fields.describe_changes(
        card["changes"], check_only=card["checkOnly"], without_sandbox=card["withoutSandbox"]
    )
    runs = f"runs: {card['flow'] or card['servedBy'] or card['runner']}"
    return dim(" · ".join([*cost, changes, runs]))


def describe_tier(card: Document) -> str:
    """The tier (`check`), with the confidence when it is meaningful (`72% check`); marked when it is at
    risk."""
    few = " (few decisions)" if (card["confidenceParts"] or {}).get("fewDecisions") else ""
    text = f"{card['confidence']:.0%}{few} {card['tierWord']}" if card["stated"] else card["tierWord"]
    return f"▲ {text}" if card["tier"] == 1 else str(text)


CARD_LABELS = {"confirmed": "approved", "rejected": "dismissed", "executed": "finished"}
"""States of cards whose stored name is not a word that you would use."""


def describe_card_state(card: Document, *, with_outcome: bool = True) -> str:
    """`approved`, `dismissed`; the outcome of a card that has run."""
    if card["outcome"] and with_outcome:
        return label_outcome(card["outcome"])
    return str(CARD_LABELS.get(card["status"], card["status"]))


def format_muted(document: Document) -> Lines:
    """Muted subjects."""
    for mute in document["muted"]:
        yield from _format_mute(mute, f"muted until {format_time(mute['until'])}" if mute["until"] else "switched off")
    if document["muted"]:
        yield dim("`clawpy muted unmute ID` lets its cards appear again")


def format_unmuted(document: Document) -> Lines:
    """Subjects that were muted until now."""
    for mute in document["muted"]:
        yield from _format_mute(mute, "unmuted")


def _format_mute(mute: Document, state_words: str) -> Lines:
    """A subject that is muted, or was."""
    place = f"in {workspace_name(mute['workspace'])}" if mute["workspace"] else "everywhere"
    title = mute["kindTitle"]
    title_words = f"{title} {place}" if mute["subject"] else f"all cards “{title}” {place}"
    yield f"{bold(mute['id'])}  {title_words}: {state_words}  ({mute['why']})"
    yield from indent_lines(mute["prompt"])


def format_card_with_session(document: Document) -> Lines:
    """A card, its session and its changes."""
    card, session, change = document["prediction"], document["session"], document["changeSet"]
    if card is not None:
        yield from _format_decided_card(card, has_session=session is not None)
    if session is not None:
        yield from _format_session(session)
    for line in document.get("transcript", ()):
        sign, tone = ("$ ", "title") if line["kind"] == "command" else ("", "ink")
        yield from (f"  │ {paint(tone, text)}" for text in f"{sign}{line['text']}".splitlines() or [""])
    if change is not None:
        yield from _format_change_set(change, session)
    for file in document.get("diff", ()):  # the hunks that have not landed, with their numbers
        yield from ("", bold(f"{file['status']} {file['path']}"))
        numbers = (number for number in itertools.count(1) if number not in file["landedHunks"])
        for line in file["hunks"].split("\n"):
            number = f"  hunk {next(numbers)}" if line.startswith("@@ ") else ""
            yield paint({"+": "good", "-": "wrong", "@": "grey"}.get(line[:1], "ink"), line) + number
    if "continues" in document:
        yield f"To send them, approve the card {bold(document['continues']['id'])}."


def _format_decided_card(card: Document, *, has_session: bool) -> Lines:
    """A card with its state. If it has a session, the session says how it ended, with failed tests too."""
    if card["status"] == "pending" and is_future(card["snoozedUntil"]):
        state_text = f"snoozed until {format_time(card['snoozedUntil'])}"
    else:
        state_text = describe_card_state(card, with_outcome=not has_session or card["outcome"] == "discarded")
    yield f"{bold(card['id'])}  {state_text}  {format_place(card)}"
    yield from indent_lines(card["prompt"])
    if card["note"]:
        yield f"    {card['note']}"
    if card["note"] and card["status"] == "rejected":  # a kind of card was switched off
        yield dim(f"    `clawpy undo {card['id']}` undoes it, `clawpy muted` lists it")


def _format_session(session: Document) -> Lines:
    """A session: how it ended, where it ran, and its result."""
    yield f"{bold(session['id'])}  {paint_session_outcome(session)}  {format_place(session)}  {session['sandbox']}"
    yield from indent_lines(session["error"] or session["summary"])


def _format_change_set(change: Document, session: Document | None = None) -> Lines:
    """A change set. Its repository is named once something landed there, because an id alone may lead to any. With its
    `session` the folder is named in which a rest lies that cannot be landed."""
    waiting = change["state"] == "waiting"
    on_branch = f" on {change['branch']}" if change["branch"] else ""
    where_landed = f"  in {change['workspace']}" if change["landedFiles"] or not waiting else ""
    is_continued = change["state"] == "discarded" and change["note"]  # by another session, which the note names
    state_text = paint("wants" if waiting else "grey", change["note"] if is_continued else change["state"])
    yield f"{bold(change['id'])}  {state_text}{on_branch}  {count(len(change['files']), 'file')}{where_landed}"
    for file in change["files"]:
        numbers = "binary" if file["added"] is None else f"+{file['added']} -{file['removed']}"
        numbers = "" if file["status"] == LEFT_OUT else numbers
        yield f"    {file['status']:8} {numbers:>9}  {file['path']}"
        if file["refused"]:
            yield bad(f"      ✗ cannot be landed: {file['refused']}")
        if file["note"]:
            yield wants(f"      ▲ {file['note']}")
    for comment in change["comments"]:
        old_mark, sent_mark = " before" if comment["old"] else "", "  (in a card)" if comment["sent"] else ""
        yield f"    comment {comment['number']} on {comment['path']}:{comment['line']}{old_mark}{sent_mark}"
        yield dim(f"      > {comment['quote']}")
        yield from indent_lines(comment["text"])
    if waiting:
        landed = f"{count(change['landedFiles'], 'file')} landed; for the rest: " if change["landedFiles"] else ""
        yield dim(f"    {landed}{_describe_next_steps(change, session)}")


def _describe_next_steps(change: Document, session: Document | None) -> str:
    """What can be done with changes that wait."""
    refused_count = sum(bool(file["refused"]) or file["status"] == LEFT_OUT for file in change["files"])
    if refused_count == len(change["files"]):
        source = f" from {session['cwd']}" if session and not session["gone"] else ""
        return f"copy what you need{source}, then discard it"
    return "land the other files or discard it" if refused_count else "land, branch or discard it"


def format_work(document: Document) -> Lines:
    """Sessions and changes, or one of them."""
    if "sessions" not in document:
        yield from format_card_with_session(document)
        return
    for session in document["sessions"]:
        yield from _format_session(session)
        yield dim(f"    {one_line(session['prompt'])}")
    if document["changeSets"]:
        yield from ("", bold("changes to land"))
    for change in document["changeSets"]:
        yield from _format_change_set(change)
    if not document["sessions"] and not document["changeSets"]:
        elsewhere = [f"{count(number, 'session')} in {path}" for path, number in document.get("elsewhere", {}).items()]
        yield f"Nothing has run here; {', '.join(elsewhere)}." if elsewhere else "Nothing has run yet."


def format_land(document: Document) -> Lines:
    """The changes that were landed, and that comments on them have no answer."""
    change = document["changeSet"]
    landed = count(change["landedFiles"], "file")
    result = f"Landed {landed}" if change["landings"] == 1 else f"Landed; {landed} in {change['landings']} landings"
    command = f"clawpy undo {change['id']}"
    yield f"{result}. Undo: `{bold(command)}`"
    yield from _format_change_set(change, document["session"])
    comments = card_fields.describe_open_comments([bool(comment["sent"]) for comment in change["comments"]])
    if comments:
        yield wants(comments)


def format_undo(document: Document) -> Lines:
    """A landing that was undone; else the card whose decision was."""
    change = document["changeSet"]
    if change is None or change["state"] not in ("undone", "waiting"):
        yield from format_card_with_session(document)
        session = document["session"]
        if session and session["state"] in ("queued", "running"):
            command = f"clawpy work {session['id']}"
            yield f"It is being stopped, and its card comes back: `{bold(command)}` shows how it ends."
        return
    landings_left = f"; {change['landings']} left" if change["landings"] else ""
    command = f"clawpy land {change['id']}"
    yield f"Landing undone{landings_left}. Land all that waits: `{bold(command)}`"
    yield from _format_change_set(change, document["session"])


def format_branch(document: Document) -> Lines:
    """The branch that was made."""
    change = document["changeSet"]
    yield f"Committed to {bold(change['branch'])}. The commit is not signed, and no hooks ran."
    yield from _format_change_set(change, document["session"])


def format_discard(document: Document) -> Lines:
    """The changes that would be deleted, or were."""
    if not document["discarded"]:
        yield wants("would be deleted")
    yield from format_card_with_session(document)
    if not document["discarded"]:
        yield f"Nothing changed yet. Add `{bold('--yes')}` to delete the changes."


def format_reply(document: Document) -> Lines:
    """That the message was sent."""
    yield f"sent to {document['session']['id']}; it reads the message at its next turn"


def format_xray(document: Document) -> Lines:
    """The model calls of a session, or one call with its prompt."""
    session, name = document["session"], document["id"]
    yield f"{bold(name)}  {session['prompt'] if session else 'what to keep of the day'}"
    if "call" in document:
        yield from _format_call_with_prompt(document)
    elif document["calls"]:
        yield from (f"  {number:>3}  {_format_call(call)}" for number, call in enumerate(document["calls"], 1))
        yield dim(f"  `clawpy xray {name} --call 1` shows what was sent")
    else:
        yield dim(f"  {_explain_no_calls(session)}")


def _explain_no_calls(session: Document | None) -> str:
    """Why there are no model calls."""
    if session is None:
        return "no calls: no model is set in `[memory] model`, or that day is not over"
    if session["flow"]:
        return "no model calls: a flow runs without a model"
    return "no model calls" if session["state"] not in ("queued", "running") else "no model calls yet"


def _format_call(call: Document) -> str:
    """A model call in one line: model, state, tokens, cost and seconds."""
    tone = {"done": "good", "running": "wants"}.get(call["state"], "wrong")
    cost = f"{'' if call['priceKnown'] else '~'}${call['cost']:.4f}"
    took = "" if call["seconds"] is None else f"  {call['seconds']:.1f} s"
    figures = f"{call['inputTokens']:,} → {call['outputTokens']:,} tokens  {cost}{took}"
    error = f"  {call['error']}" if call["error"] else ""
    return f"{call['model']:24}  {paint(tone, call['state'])}  {dim(figures)}{error}"


SOURCE_CELLS = 14
"""Columns for the source of a line of a prompt."""

TRUST_CELLS = 15
"""Columns for the trust in the line."""


def _format_call_with_prompt(document: Document) -> Lines:
    """A model call with the prompt that was sent, line by line with its source, and the answer."""
    yield f"  {_format_call(document['call'])}"
    yield from (f"  {wants('!')} {note}" for note in document["call"]["notes"])
    for part in document["prompt"]:
        yield from ("", dim(f"{part['role']} · {part['name']} · ~{count(part['tokens'], 'token')}"))
        source_above = None
        for line in part["lines"]:
            source = line["label"] or line["source"]
            label = source if source != source_above else ""
            source_above = source
            lead = dim(f"{label[:SOURCE_CELLS]:>{SOURCE_CELLS}} {line['trust']:{TRUST_CELLS}} │")
            hostile = bad(f"▲ hostile, {line['hostile']}: ") if line["hostile"] else ""
            yield f"{lead} {hostile}{line['text']}"
    if reply := document["reply"].rstrip("\n"):
        yield from ("", dim("answered"))
        yield from (f"{'':>{SOURCE_CELLS + 1 + TRUST_CELLS}} │ {line}" for line in reply.split("\n"))


def format_tasks(document: Document) -> Lines:
    """The task board, or one task."""
    board = document["tasks"] if "tasks" in document else [document["task"]]
    signs = {state: sign for state, (sign, _) in card_fields.SESSION_SIGNS.items()} | {"open": "○", "done": "✓"}
    for task in board:
        state, note = task["state"], task["note"]
        outcome, _, reason = note.partition(": ")
        if outcome in card_fields.SESSION_SIGNS:
            state, note = (outcome, reason) if state == "failed" else (state, f"{label_outcome(outcome)}: {reason}")
        remarks = "  " + dim(note) if note else ""
        if task["waitsFor"] and state == "open":
            remarks += "  " + wants(f"waits for {', '.join(task['waitsFor'])}")
        yield f"{signs[state]} {label_outcome(state):7}  {dim(task['id'])}  {task['title']}{remarks}"
    if document.get("more"):
        yield dim(f"there are more than these {len(board)}: `clawpy tasks list --limit 1000`")


def format_permissions(document: Document) -> Lines:
    """Permission requests with their whole detail."""
    for request in document["permissions"]:
        state = request["answer"] or (
            "withdrawn" if request["withdrawn"] else f"waits {short_span(timedelta(seconds=request['waitedSeconds']))}"
        )
        tone = "grey" if request["answer"] or request["withdrawn"] else "wants"
        yield f"{bold(request['id'])}  {paint(tone, state)}  {request['targetAgent']}  {request['title']}"
        yield "    " + dim(request["reason"])
        if request["detail"] and request["detail"] not in request["title"]:
            yield from (f"    │ {line}" for line in request["detail"].splitlines())
