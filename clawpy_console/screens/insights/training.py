"""Training of the Twin in words: how it stands, and what starting, stopping or swapping means (SPEC 8.3, 8.4)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from clawpy_console import words
from clawpy_console.fields import Field, bar
from engine.values import TrainingOffer, TrainingRunView, TrainingView

METHODS = {"dpo": "preference pairs", "sft": "conversations"}
STATES = {
    "prepared": ("◐", "being sent", "accent"), "uploaded": ("◐", "being started", "accent"),
    "started": ("◐", "in training", "accent"), "trained": ("◐", "being measured", "accent"),
    "adopted": ("●", "in use", "accent"), "kept_old": ("○", "not swapped in", "grey"),
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
        yield Field(train, "train; says first what is sent where", "accent")
    off = "" if read.enabled or not read.model else ", off: twinModelEnabled (6)"
    yield Field("Twin model", f"{read.model or 'none: the embedded Twin alone'}{off}")
    for run in read.runs:
        sign, said, tone = STATES.get(run.state, ("◐", run.state, "accent"))
        cost = f" · {words.money(run.cost)}" if run.cost else ""
        examples = f"{run.records:,} {METHODS.get(run.method, run.method)}"
        yield Field(f"{sign} {said}", f"{words.moment(run.created_at, now)} · {examples}{cost}", tone)
        if run.note:
            yield Field("", words.one_line(run.note), "faint")
    if (newest := read.swap) is not None:
        back = newest.former_model or "none"
        said = f"swap in {newest.model}" if newest.state == "kept_old" else f"go back to the model before: {back}"
        yield Field(swap, said, "accent")


def question(offer: TrainingOffer, read: TrainingView, key: str) -> str:
    """What is sent where, what it may cost, what comes of it, before a training is started; `key` stops it again."""
    where = f"{offer.provider} ({offer.base_url})" if offer.base_url else offer.provider
    use = "" if read.enabled else " It is asked for cards only while twinModelEnabled is on (6); now it is off."
    against = f"{offer.current_model} does" if offer.current_model else "a coin would"
    size = f"{offer.size / 1000:,.0f} kB" if offer.size < 1_000_000 else f"{offer.size / 1_000_000:.1f} MB"
    return (
        f"{offer.records:,} {METHODS.get(offer.method, offer.method)}, {size}, go to {where}, which trains "
        f"{offer.base_model} on them.\n\n"
        "Sent: what stood in the context when a card was made (names of files and branches, titles of tasks, the last "
        "test result), prompts you approved and dismissed with their channels; of imported conversations what was "
        "said. AppState secrets are removed.\n\n"
        f"Stays here: {offer.held_back:,} decisions, to measure the new model. It is used only if it agrees with them "
        f"at least as often as {against}.{use}\n\n"
        f"Cost: what the provider asks. {words.money(offer.cost_cap)} are set aside within your caps "
        f"(training.costCap); the price is settled at the end. {key} stops it on the way."
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
        return "Swap this model in?", f"{run.model} replaces {read.model or 'none'} at once.{measured}"
    back = run.former_model or "no model: the embedded Twin alone"
    return "Go back to the model before?", f"{run.model} is taken out, and used again is {back}.{measured}"
