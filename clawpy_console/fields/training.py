"""The training of Twin models as fields and questions, for the insights screen and for `clawpy train` (SPEC 8.4)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from clawpy_console import formats
from clawpy_console.fields import Field, bar, heading
from clawpy_console.formats import one_line
from engine.model import TrainingOffer, TrainingRunView, TrainingView

METHOD_NAMES = {"dpo": "preference pairs", "sft": "conversations"}
"""The examples of a training, by its method."""

TRAINING_STATES = {
    "prepared": ("◐", "being sent", "accent"), "uploaded": ("◐", "being started", "accent"),
    "started": ("◐", "in training", "accent"), "trained": ("◐", "being measured", "accent"),
    "adopted": ("●", "in use", "accent"), "kept_old": ("○", "not adopted", "grey"),
    "failed": ("✗", "failed", "wrong"), "cancelled": ("■", "stopped", "grey"),
}  # fmt: skip
"""Sign, words and tone of each state of a training."""


def training_fields(view: TrainingView, now: datetime, train_key: str, swap_key: str) -> Iterator[Field]:
    """The pairs until the next training, the model in use, the newest trainings; and the keys that train and swap."""
    yield heading("training")
    yield Field("pairs", f"{bar(view.pairs / max(1, view.needed))} {view.pairs:,} of {view.needed} new")
    if view.active is None:
        automatic = "; it starts by itself when it is due" if view.automatic else ""
        yield Field("next", f"{view.words or 'the next training is due'}{automatic}")
        yield Field(train_key, "train; first shows what is sent and where", "accent")
    off = "" if view.enabled or not view.model else ", off: twinModelEnabled (6)"
    yield Field("Twin model", f"{view.model or 'none: only the built-in Twin'}{off}")
    for run in view.runs:
        sign, label, tone = TRAINING_STATES.get(run.state, ("◐", run.state, "accent"))
        cost = f" · {formats.money(run.cost)}" if run.cost else ""
        examples = f"{run.records:,} {METHOD_NAMES.get(run.method, run.method)}"
        yield Field(f"{sign} {label}", f"{formats.moment(run.created_at, now)} · {examples}{cost}", tone)
        if run.note:
            yield Field("", one_line(run.note), "faint")
    if (newest := view.swap) is not None:
        label = f"go back to the previous model: {newest.former_model or 'none'}"
        if newest.state == "kept_old":
            label = f"switch to {newest.model}"
        yield Field(swap_key, label, "accent")


def training_question(offer: TrainingOffer, view: TrainingView, key: str) -> str:
    """The question before a training: what is sent where, its cost and its result; `key` stops it again."""
    provider = f"{offer.provider} ({offer.base_url})" if offer.base_url else offer.provider
    off_note = "" if view.enabled else " It predicts cards only while twinModelEnabled is on (6), which is off now."
    baseline = f"{offer.current_model} does" if offer.current_model else "a coin toss would"
    size = f"{offer.size / 1000:,.0f} kB" if offer.size < 1_000_000 else f"{offer.size / 1_000_000:.1f} MB"
    return (
        f"{offer.records:,} {METHOD_NAMES.get(offer.method, offer.method)}, {size}, go to {provider}, which trains "
        f"{offer.base_model} on them.\n\n"
        "What is sent: the context of each card (names of files and branches, titles of tasks, the last "
        "test result), prompts you approved and dismissed with their channels; the text of imported conversations. "
        "Known secrets are removed.\n\n"
        f"What stays here: {offer.held_back:,} decisions, to measure the new model. It is used only if it agrees with "
        f"them at least as often as {baseline}.{off_note}\n\n"
        f"Cost: what the provider charges. {formats.money(offer.cost_cap)} is reserved within your caps "
        f"(training.costCap); the final price is known at the end. {key} stops the training."
    )


def stop_question(run: TrainingRunView) -> str:
    """The question before a training is stopped."""
    return (
        f"{run.id}: {run.records:,} {METHOD_NAMES.get(run.method, run.method)} at {run.provider}, "
        f"{TRAINING_STATES[run.state][1]}.\n\nIt is also cancelled at the provider, which may still charge for work "
        "done. The model in use stays; no pair is used up."
    )


def swap_title_and_question(run: TrainingRunView, view: TrainingView) -> tuple[str, str]:
    """The title and the question before a swap of models."""
    measured = f"\n\nMeasured: {one_line(run.note)}" if run.note else ""
    if run.state == "kept_old":
        return "Use this model?", f"{run.model} replaces {view.model or 'none'} immediately.{measured}"
    back = run.former_model or "no model: only the built-in Twin"
    return "Go back to the previous model?", f"{run.model} is no longer used. In use again: {back}.{measured}"
