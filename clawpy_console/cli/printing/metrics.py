"""What `clawpy export`, `train` and `metrics` print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawpy_console.cli.printing.style import Document, Style, clean, count, printed
from clawpy_console.fields import Field
from clawpy_console.screens.insights import figures


def export(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Where what was learnt now lies."""
    what = "pairs" if document["what"] == "dpo" else "conversations"
    lines = [f"{document['records']:,} {what}, {document['new']:,} of them new: {clean(document['file'])}"]
    if document["weights"]:
        lines.append(style.dim(f"their weights: {clean(document['weights'])}"))
    return "\n".join(lines)


def train(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The Twin model in use, the runs, and when the next one is due."""
    model = document["twinModel"]
    used = "no Twin model is named" if model is None else f"Twin model {clean(model)}"
    lines = [used if document["enabled"] or model is None else f"{used}, off: clawpy config set twinModelEnabled true"]
    if "imported" in document:
        lines.append(count(document["imported"], "new pair"))
    for run in document["runs"]:
        name = f"{run['id']}  {run['state']:9}  {run['method']}  {count(run['records'], 'example')}  ${run['cost']:.2f}"
        lines += [name, style.dim(f"    {clean(run['message'])}")]
    return "\n".join([*lines, clean(document["next"])])


def metrics(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Rates, calibration, drift; sources, channels and kinds as tables."""
    fields = [
        *figures.head(document),
        *figures.calibration(document),
        *figures.drift(document["drift"]),
        Field("training", document["nextTraining"]),
        Field("", ""),
        *figures.tables(document, ("sources", "channels", "kinds")),
    ]
    return "\n".join(printed(fields, style))
