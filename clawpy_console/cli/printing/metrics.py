"""What `clawpy export`, `train` and `metrics` print."""

from __future__ import annotations

from clawpy_console.cli.printing.style import Document, Lines, count, dim, paint, printed
from clawpy_console.fields import Field
from clawpy_console.screens.insights import figures
from clawpy_console.screens.insights.training import STATES


def export(document: Document) -> Lines:
    """Where what was learnt now lies."""
    what = "pairs" if document["what"] == "dpo" else "conversations"
    yield f"{document['records']:,} {what}, {document['new']:,} of them new: {document['file']}"
    if document["weights"]:
        yield dim(f"their weights: {document['weights']}")


def train(document: Document) -> Lines:
    """The Twin model in use, the runs, and when the next one is due."""
    model = document["twinModel"]
    used = "no Twin model is set" if model is None else f"Twin model {model}"
    yield used if document["enabled"] or model is None else f"{used}, off: clawpy config set twinModelEnabled true"
    if "imported" in document:
        yield count(document["imported"], "new pair")
    for run in document["runs"]:
        sign, said, tone = STATES[run["state"]]
        state, examples = paint(tone, f"{sign} {said}"), count(run["records"], "example")
        yield f"{run['id']}  {state}  {run['method']}  {examples}  ${run['cost']:.2f}"
        yield dim(f"    {run['message']}")
    yield document["next"]


def metrics(document: Document) -> Lines:
    """Rates, calibration, drift; sources, channels and kinds as tables."""
    fields = [
        *figures.head(document),
        *figures.calibration(document),
        *figures.drift(document["drift"]),
        Field("training", document["nextTraining"]),
        Field("", ""),
        *figures.tables(document, ("sources", "channels", "kinds")),
    ]
    return printed(fields)
