"""What happened since you were last there, for the greeting and for `clawpy status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from clawpy_console import words
from clawpy_console.fields import Field

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
    bad = sum(session["result"] != "succeeded" or session["state"] == "discarded" for session in ran)
    yield Field("done", words.count(len(ran), "session") + (f", {bad} failed" if bad else ""))
    if blocked:
        rails = ", ".join(
            f"{rail} {number}" for rail, number in Counter(entry["rail"] for entry in blocked).most_common()
        )
        yield Field("blocked", f"{len(blocked)} by the rails: {rails}")
    itself = then["approvedByItself"]
    yield Field("approved", f"{approved}, {itself} by itself" if itself else f"{approved}")
    yield Field("dismissed", f"{dismissed}")
    decisions = approved - itself + dismissed
    by = f", from {words.count(decisions, 'decision')}" if decisions else ""
    yield Field("learned", f"{', '.join(learned) or 'nothing new'}{by}")
    if then["spent"]:
        yield Field("spent", f"${then['spent']:.2f}")
