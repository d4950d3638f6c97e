"""The work while the operator was away as fields, for the greeting and for `clawpy status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from clawpy_console import formats
from clawpy_console.fields import Document, Field
from engine.model import PROBLEM_FOUND, outcome_in_words

LEARNED_FORMS: Mapping[str, tuple[str, str]] = {
    "learnings": ("learning promoted", "learnings promoted"),
    "facts": ("fact kept", "facts kept"),
    "proposed": ("candidate to review", "candidates to review"),
    "inForceByItself": ("candidate activated without you", "candidates activated without you"),
}
"""The kinds of things that were learned, by key in the document, in words for one and for several."""


def absence_fields(document: Document) -> Iterator[Field]:
    """Sessions, blocks, decisions, learnings and costs; no fields when nothing happened."""
    ran, blocked = document["ran"], document["blocked"]
    approved, dismissed, counts_learned = document["approved"], document["rejected"], document["learnt"]
    learned = [
        formats.count(counts_learned[key], *forms) for key, forms in LEARNED_FORMS.items() if counts_learned[key]
    ]
    if not (ran or blocked or approved or dismissed or learned):
        return
    problems = sum(outcome_in_words(session["state"], session["result"]) == PROBLEM_FOUND for session in ran)
    unfinished = sum(session["state"] not in ("succeeded", "discarded") for session in ran)
    parts = [formats.count(len(ran), "session")]
    parts += [f"{problems} found a problem"] if problems else []
    parts += [f"{unfinished} did not finish"] if unfinished else []
    yield Field("done", ", ".join(parts))
    if blocked:
        counts = Counter(entry["rail"] for entry in blocked)
        rails = ", ".join(f"{rail} {count}" for rail, count in counts.most_common())
        yield Field("blocked", f"{len(blocked)} by the rails: {rails}")
    by_itself = document["approvedByItself"]
    yield Field("approved", f"{approved}, {by_itself} by itself" if by_itself else f"{approved}")
    yield Field("dismissed", f"{dismissed}")
    uncounted = sum(session["state"] == "cannot_run" and session["mode"] == "approved" for session in ran)
    decisions = max(0, approved - by_itself + dismissed - uncounted)
    basis = f", from {formats.count(decisions, 'decision')}" if decisions else ""
    yield Field("learned", f"{', '.join(learned) or 'nothing new'}{basis}")
    if document["spent"]:
        yield Field("spent", f"${document['spent']:.2f}")
