"""What the verbs of cards, sessions and change sets print."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from clawpy_console import words
from clawpy_console.cli.printing.style import (
    Document,
    Style,
    clean,
    count,
    how_it_ended,
    indented,
    one_line,
    place,
    time,
)


def cards(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The stack, or the latest cards of any status."""
    found = document["predictions"]
    lines = [_card(one, style) for one in found]
    lines += [style.dim(f"! {clean(error)}") for error in document.get("errors", ())]
    if not found:
        places = [f"{number} in {clean(path)}" for path, number in document.get("elsewhere", {}).items()]
        said = f"No cards here; {', '.join(places)}." if places else "No cards."
        advise = not (places or options.get("all") or "created" in document)  # `clawpy predict` has just checked
        lines.insert(0, f"{said} `clawpy predict` checks for new ones." if advise else said)
    return "\n".join(lines)


def _card(one: Document, style: Style) -> str:
    badges = [
        word
        for word, on in (("SUGGESTED", one["stated"] and one["band"] in ("suggested", "act")), ("NEW", one["novel"]))
        if on
    ]
    if one["status"] != "pending":
        badges.append(state(one))
    if one["snoozedUntil"] and one["status"] == "pending":
        badges.append(f"snoozed until {time(one['snoozedUntil'])}")
    sure = how_sure(one)
    head = f"{style.bold(clean(one['id']))}  {style.bad(sure) if one['tier'] == 1 else sure}  {place(one)}"
    lines = [head + ("  " + style.wants(" ".join(badges)) if badges else "")]
    if one["status"] == "pending" and one["withoutSandbox"]:
        how = "approve it with --without-sandbox" if one["needsConfirmation"] else "the settings allow that here"
        lines.append("    " + style.wants(f"no sandbox on this machine; {how}"))
    lines += indented(one["prompt"])
    if one["reasoning"]:
        lines.append("    " + style.dim(clean(one["reasoning"])))
    if one["status"] == "pending" and not one["undoNote"]:
        # so nothing is known of cost and undo either
        lines.append("    " + style.wants("No model or agent can run this yet."))
    elif one["status"] == "pending":
        cost = [f"est. ${one['estimatedCost']:.2f}"] if one["estimatedCost"] else []
        changes = words.touches(one["flow"] or "", one["checkOnly"], one["withoutSandbox"])
        runs = f"runs: {one['flow'] or clean(one['servedBy']) or one['runner']}"
        lines.append("    " + style.dim(" · ".join([*cost, changes, runs])))
    if one["status"] == "pending":
        # That a person decides is what a card is for; anything else a rail says is news.
        asks = [each for each in one["verdicts"] if each["verdict"] != "allow" and each["rail"] != "gate"]
        lines += [f"    {style.wants(each['verdict'])} {clean(each['rail'])}: {clean(each['reason'])}" for each in asks]
    if one["note"]:
        lines.append(f"    {clean(one['note'])}")
    return "\n".join(lines)


def how_sure(one: Document) -> str:
    """`quick check` while no confidence is stated, then `72% quick check`; marked where it is broken or at risk."""
    few = " (few decisions)" if (one["confidenceParts"] or {}).get("fewDecisions") else ""
    said = f"{one['confidence']:.0%}{few} {one['tierWord']}" if one["stated"] else one["tierWord"]
    return f"▲ {said}" if one["tier"] == 1 else str(said)


def state(card: Document, *, with_outcome: bool = True) -> str:
    """`approved`, `dismissed`; of a card that has run how it ended."""
    said = words.CARD_STATES.get(card["status"], card["status"])
    return words.session_state(card["outcome"]) if card["outcome"] and with_outcome else str(said)


def lap(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Card, session and change set after a verb."""
    lines = []
    card, session, change = document["prediction"], document["session"], document["changeSet"]
    if card is not None:
        told = session is not None and card["outcome"] != "discarded"  # the session says how it ended, red tests too
        snoozed = card["status"] == "pending" and card["snoozedUntil"]
        said = f"snoozed until {time(card['snoozedUntil'])}" if snoozed else state(card, with_outcome=not told)
        lines += [f"{style.bold(clean(card['id']))}  {said}  {place(card)}", *indented(card["prompt"])]
        if card["note"]:
            lines.append(f"    {clean(card['note'])}")
        if card["note"] and card["status"] == "rejected":  # a kind of card was switched off
            lines.append(style.dim(f"    `clawpy undo {clean(card['id'])}` undoes it, `clawpy muted` lists it"))
    if session is not None:
        lines += _session(session, style)
    for line in document.get("transcript", ()):
        text = clean(line["text"])
        told = f"$ {text}" if line["kind"] == "command" else text
        paint = style.bold if line["kind"] == "command" else str
        lines += [f"  │ {paint(one)}" for one in told.splitlines() or [""]]
    if change is not None:
        lines += _change(change, style, named=options.get("verb") in CHANGING)
    for file in document.get("diff", ()):
        lines += ["", style.bold(f"{file['status']} {clean(file['path'])}")]
        numbers = itertools.count(1)
        for line in clean(file["hunks"]).split("\n"):
            number = f"  hunk {next(numbers)}" if line.startswith("@@ ") else ""
            lines.append(_diff_line(line, style) + number)
    if "continues" in document:
        lines.append(f"The card {style.bold(clean(document['continues']['id']))} sends them; approve it.")
    return "\n".join(lines)


def _session(one: Document, style: Style) -> list[str]:
    detail = one["error"] or one["summary"]
    lines = [f"{style.bold(clean(one['id']))}  {how_it_ended(one, style)}  {place(one)}  {clean(one['sandbox'])}"]
    return [*lines, *indented(detail)]


CHANGING = frozenset({"land", "branch", "discard", "undo"})
"""Verbs that may change any repository by an id alone, and so name the one they changed."""


def _change(one: Document, style: Style, *, named: bool = False) -> list[str]:
    paint = style.wants if one["state"] == "waiting" else style.dim
    where = f" on {clean(one['branch'])}" if one["branch"] else ""
    lines = [f"{style.bold(clean(one['id']))}  {paint(one['state'])}{where}  {count(len(one['files']), 'file')}"]
    if named:
        lines[0] += f"  in {clean(one['workspace'])}"
    for file in one["files"]:
        numbers = "binary" if file["added"] is None else f"+{file['added']} -{file['removed']}"
        lines.append(f"    {file['status']:8} {numbers:>9}  {clean(file['path'])}")
        if file["refused"]:
            lines.append(style.bad(f"      ✗ cannot be landed: {clean(file['refused'])}"))
        if file["note"]:
            lines.append(style.wants(f"      ▲ {clean(file['note'])}"))
    for comment in one["comments"]:
        before, sent = " before" if comment["old"] else "", "  (sent)" if comment["sent"] else ""
        lines.append(f"    comment {comment['number']} on {clean(comment['path'])}:{comment['line']}{before}{sent}")
        lines += [style.dim(f"      > {clean(comment['quote'])}"), *indented(comment["text"])]
    if one["state"] == "waiting":
        landed = f"{count(one['landedFiles'], 'file')} landed; for the rest: " if one["landedFiles"] else ""
        lines.append(style.dim(f"    {landed}land, branch or discard it"))
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
        lines += [*_session(one, style), style.dim(f"    {one_line(one['prompt'])}")]
    if document["changeSets"]:
        lines += ["", style.bold("changes to land")]
        for change in document["changeSets"]:
            lines += _change(change, style)
    return "\n".join(lines) or _nothing(document.get("elsewhere", {}))


def _nothing(elsewhere: Mapping[str, int]) -> str:
    """That nothing was run here, and where something was."""
    if not elsewhere:
        return "Nothing has run yet."
    told = [f"{count(number, 'session')} in {clean(path)}" for path, number in list(elsewhere.items())[:3]]
    more = f" and {len(elsewhere) - 3} more" if len(elsewhere) > 3 else ""
    first = shlex.quote(clean(next(iter(elsewhere))))
    return f"Nothing has run here; {', '.join(told)}{more}.\n  `clawpy --workspace {first} work` shows them"


def muted(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """What stays away because it was dismissed, or what was just lifted."""
    lines = []
    for one in document["muted"]:
        where = f"in {clean(PurePath(one['workspace']).name)}" if one["workspace"] else "everywhere"
        away = f"muted until {time(one['until'])}" if one["until"] else "switched off"
        if options.get("action") == "unmute":
            away = "unmuted"
        title = clean(one["kindTitle"])
        what = f"{title} {where}" if one["subject"] else f"all cards “{title}” {where}"
        lines.append(f"{style.bold(clean(one['id']))}  {what}: {away}  ({clean(one['why'])})")
        lines += indented(one["prompt"])
    if options.get("action") != "unmute" and lines:
        lines.append(style.dim("`clawpy muted unmute ID` lets its cards appear again"))
    return "\n".join(lines) or "Nothing is muted."
