"""Output of the verbs on cards and on muted subjects."""

from __future__ import annotations

from pathlib import PurePath

from clawpy_console.cli.printing.style import (
    Document,
    Lines,
    bad,
    bold,
    dim,
    indented,
    place,
    time,
    wants,
)
from clawpy_console.fields import states


def cards(document: Document) -> Lines:
    """Pending cards, or the latest of any status."""
    found_cards = document["predictions"]
    if not found_cards:
        elsewhere = [f"{number} in {path}" for path, number in document.get("elsewhere", {}).items()]
        message = f"No cards here; {', '.join(elsewhere)}." if elsewhere else "No cards."
        advise = not (elsewhere or "created" in document)  # `clawpy predict` has just checked
        yield f"{message} `clawpy predict` checks for new ones." if advise else message
    for card in found_cards:
        yield from _card(card)
    yield from (dim(f"! {error}") for error in document.get("errors", ()))


def _card(card: Document) -> Lines:
    badges = ["SUGGESTED"] if card["stated"] and card["band"] in ("suggested", "act") else []
    pending = card["status"] == "pending"
    badges += ["NEW"] if card["novel"] and card["stated"] and pending else []
    if not pending:
        badges.append(card_state(card))
    elif card["snoozedUntil"]:
        badges.append(f"snoozed until {time(card['snoozedUntil'])}")
    confidence_text = tier_and_confidence(card)
    head = f"{bold(card['id'])}  {bad(confidence_text) if card['tier'] == 1 else confidence_text}  {place(card)}"
    yield head + ("  " + wants(" ".join(badges)) if badges else "")
    if pending and card["withoutSandbox"]:
        how = "approve it with --without-sandbox" if card["needsConfirmation"] else "the settings allow that here"
        yield "    " + wants(f"no sandbox on this machine; {how}")
    yield from indented(card["prompt"])
    if card["reasoning"]:
        yield "    " + dim(card["reasoning"])
    if pending and not card["undoNote"]:
        # so nothing is known of cost and undo either
        yield "    " + wants(states.cannot_run_text(card["flow"]))
    elif pending:
        cost = [f"est. ${card['estimatedCost']:.2f}"] if card["estimatedCost"] else []
        changes = states.describe_changes(card["flow"], card["checkOnly"], card["withoutSandbox"])
        runs = f"runs: {card['flow'] or card['servedBy'] or card['runner']}"
        yield "    " + dim(" · ".join([*cost, changes, runs]))
    for verdict in card["verdicts"] if pending else ():
        # That a person decides is what a card is for; anything else a rail says is news.
        if verdict["verdict"] != "allow" and verdict["rail"] != "gate":
            yield f"    {wants(verdict['verdict'])} {verdict['rail']}: {verdict['reason']}"
    if card["note"]:
        yield f"    {card['note']}"


def tier_and_confidence(card: Document) -> str:
    """The tier (`quick check`), with the confidence when it is meaningful (`72% quick check`); marked when it is at
    risk."""
    few = " (few decisions)" if (card["confidenceParts"] or {}).get("fewDecisions") else ""
    text = f"{card['confidence']:.0%}{few} {card['tierWord']}" if card["stated"] else card["tierWord"]
    return f"▲ {text}" if card["tier"] == 1 else str(text)


def card_state(card: Document, *, with_outcome: bool = True) -> str:
    """`approved`, `dismissed`; the outcome of a card that has run."""
    if card["outcome"] and with_outcome:
        return str(states.SESSION_LABELS.get(card["outcome"], card["outcome"]))
    return str(states.CARD_LABELS.get(card["status"], card["status"]))


def muted(document: Document) -> Lines:
    """Muted subjects."""
    for mute in document["muted"]:
        yield from _mute(mute, f"muted until {time(mute['until'])}" if mute["until"] else "switched off")
    if document["muted"]:
        yield dim("`clawpy muted unmute ID` lets its cards appear again")


def unmuted(document: Document) -> Lines:
    """Subjects that were muted until now."""
    for mute in document["muted"]:
        yield from _mute(mute, "unmuted")


def _mute(mute: Document, how: str) -> Lines:
    where = f"in {PurePath(mute['workspace']).name}" if mute["workspace"] else "everywhere"
    title = mute["kindTitle"]
    title_words = f"{title} {where}" if mute["subject"] else f"all cards “{title}” {where}"
    yield f"{bold(mute['id'])}  {title_words}: {how}  ({mute['why']})"
    yield from indented(mute["prompt"])
