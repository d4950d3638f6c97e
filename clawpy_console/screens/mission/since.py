"""What happened since you were last there, for the greeting and for `clawpy status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from clawpy_console import words
from clawpy_console.fields import Field
from engine.model import PROBLEM_FOUND, outcome_in_words

Document = Mapping[str, Any]

LEARNED = {
    "learnings": ("learning promoted", "learnings promoted"),
    "facts": ("fact kept", "facts kept"),
    "proposed": ("candidate to review", "candidates to review"),
    "inForceByItself": ("candidate activated without you", "candidates activated without you"),
}


def since_fields(then: Document) -> Iterator[Field]:
    """What ran, was blocked, decided, learned and spent; nothing when nothing happened."""
    ran, blocked, approved, dismissed = then["ran"], then["blocked"], then["approved"], then["rejected"]
    learned = [words.count(then["learnt"][name], *forms) for name, forms in LEARNED.items() if then["learnt"][name]]
    if not (ran or blocked or approved or dismissed or learned):
        return
    problems = sum(outcome_in_words(session["state"], session["result"]) == PROBLEM_FOUND for session in ran)
    bad = sum(session["state"] not in ("succeeded", "discarded") for session in ran)
    counts = (f"{problems} found a problem" if problems else "", f"{bad} did not finish" if bad else "")
    yield Field("done", ", ".join(filter(None, (words.count(len(ran), "session"), *counts))))
    if blocked:
        rails = ", ".join(
            f"{rail} {number}" for rail, number in Counter(entry["rail"] for entry in blocked).most_common()
        )
        yield Field("blocked", f"{len(blocked)} by the rails: {rails}")
    itself = then["approvedByItself"]
    yield Field("approved", f"{approved}, {itself} by itself" if itself else f"{approved}")
    yield Field("dismissed", f"{dismissed}")
    uncounted = sum(session["state"] == "cannot_run" and session["mode"] == "approved" for session in ran)
    decisions = max(0, approved - itself + dismissed - uncounted)
    by = f", from {words.count(decisions, 'decision')}" if decisions else ""
    yield Field("learned", f"{', '.join(learned) or 'nothing new'}{by}")
    if then["spent"]:
        yield Field("spent", f"${then['spent']:.2f}")
