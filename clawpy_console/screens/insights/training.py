"""Training of the Twin in words: how it stands, and what starting, stopping or swapping means (SPEC 8.3, 8.4)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from clawpy_console import words
from clawpy_console.fields import Field, bar
from engine.model import TrainingOffer, TrainingRunView, TrainingView

METHODS = {"dpo": "preference pairs", "sft": "conversations"}
STATES = {
    "prepared": ("◐", "being sent", "accent"), "uploaded": ("◐", "being started", "accent"),
    "started": ("◐", "in training", "accent"), "trained": ("◐", "being measured", "accent"),
    "adopted": ("●", "in use", "accent"), "kept_old": ("○", "not adopted", "grey"),
    "failed": ("✗", "failed", "wrong"), "cancelled": ("■", "stopped", "grey"),
}  # fmt: skip
"""Sign, words and tone of each state of a run."""


def training(read: TrainingView, now: datetime, train: str, swap: str) -> Iterator[Field]:
    """Pairs until the next training, the model in use, the newest runs; `train` and `swap` are keys."""
    yield Field("", "training", "heading")
    yield Field("pairs", f"{bar(read.pairs / max(1, read.needed))} {read.pairs:,} of {read.needed} new")
    if read.active is None:
        itself = "; it starts by itself when it is due" if read.automatic else ""
        yield Field("next", f"{read.words or 'the next training is due'}{itself}")
        yield Field(train, "train; first shows what is sent and where", "accent")
    off = "" if read.enabled or not read.model else ", off: twinModelEnabled (6)"
    yield Field("Twin model", f"{read.model or 'none: only the built-in Twin'}{off}")
    for run in read.runs:
        sign, said, tone = STATES.get(run.state, ("◐", run.state, "accent"))
        cost = f" · {words.money(run.cost)}" if run.cost else ""
        examples = f"{run.records:,} {METHODS.get(run.method, run.method)}"
        yield Field(f"{sign} {said}", f"{words.moment(run.created_at, now)} · {examples}{cost}", tone)
        if run.note:
            yield Field("", words.one_line(run.note), "faint")
    if (newest := read.swap) is not None:
        back = newest.former_model or "none"
        said = f"switch to {newest.model}" if newest.state == "kept_old" else f"go back to the previous model: {back}"
        yield Field(swap, said, "accent")


def question(offer: TrainingOffer, read: TrainingView, key: str) -> str:
    """What is sent where, what it may cost, what comes of it, before a training is started; `key` stops it again."""
    where = f"{offer.provider} ({offer.base_url})" if offer.base_url else offer.provider
    use = "" if read.enabled else " It predicts cards only while twinModelEnabled is on (6), which is off now."
    against = f"{offer.current_model} does" if offer.current_model else "a coin toss would"
    size = f"{offer.size / 1000:,.0f} kB" if offer.size < 1_000_000 else f"{offer.size / 1_000_000:.1f} MB"
    return (
        f"{offer.records:,} {METHODS.get(offer.method, offer.method)}, {size}, go to {where}, which trains "
        f"{offer.base_model} on them.\n\n"
        "What is sent: the context of each card (names of files and branches, titles of tasks, the last "
        "test result), prompts you approved and dismissed with their channels; the text of imported conversations. "
        "Known secrets are removed.\n\n"
        f"What stays here: {offer.held_back:,} decisions, to measure the new model. It is used only if it agrees with "
        f"them at least as often as {against}.{use}\n\n"
        f"Cost: what the provider charges. {words.money(offer.cost_cap)} is reserved within your caps "
        f"(training.costCap); the final price is known at the end. {key} stops the training."
    )


def stopping(run: TrainingRunView) -> str:
    """What stopping a run means."""
    return (
        f"{run.id}: {run.records:,} {METHODS.get(run.method, run.method)} at {run.provider}, "
        f"{STATES[run.state][1]}.\n\nIt is also cancelled at the provider, which may still charge for work done. The "
        "model in use stays; no pair is used up."
    )


def swapping(run: TrainingRunView, read: TrainingView) -> tuple[str, str]:
    """Title and question of a swap."""
    measured = f"\n\nMeasured: {words.one_line(run.note)}" if run.note else ""
    if run.state == "kept_old":
        return "Use this model?", f"{run.model} replaces {read.model or 'none'} immediately.{measured}"
    back = run.former_model or "no model: only the built-in Twin"
    return "Go back to the previous model?", f"{run.model} is no longer used. In use again: {back}.{measured}"
