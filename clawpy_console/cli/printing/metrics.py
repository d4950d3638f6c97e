"""What `clawpy export`, `train` and `metrics` print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawpy_console.cli.printing.style import Document, Style, clean, count, percent, price


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


NUMBERED = {"discarded": "discarded", "withdrawn": "withdrawn", "cannotRun": "could not run", "waiting": "waiting"}
"""Counts that are told where there are any."""


def metrics(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Rates, calibration, trend; sources and channels as tables."""
    days = int(document["period"].removeprefix("last_").removesuffix("_days"))
    decided = f"{document['approved']:,} approved, {document['rejected']:,} dismissed, {document['expired']:,} expired"
    decided += "".join(f", {document[name]:,} {word}" for name, word in NUMBERED.items() if document[name])
    lines = [
        f"last {count(days, 'day')}: {count(document['totalPredictions'], 'card')}, {decided}"
        + (f"; {count(document['ownPrompts'], 'prompt')} of your own beside" if document["ownPrompts"] else ""),
        f"approved {percent(document['approvalRate'])} ({document['trendDirection']})"
        f" · by itself {document['autoExecuted']:,}, kept {percent(document['autoSuccessRate'])}"
        f" · an accepted card costs {price(document['costPerAccepted'])}",
        clean(document["phaseReason"]),
        clean(document["calibrationWords"]),
    ]
    if any(one["predictions"] for one in document["calibration"]):
        lines.append("confidence  decided  approved")
    for one in document["calibration"]:
        if one["predictions"]:
            bar = "▇" * round(10 * one["approvalRate"])
            lines.append(f"{one['bucket']:10}  {one['predictions']:7,}  {percent(one['approvalRate']):>8}  {bar}")
    lines.append(f"drift: {clean(document['drift']['words'])}")
    lines += [f"    {_shift(one)}" for one in document["drift"]["kinds"]]
    for what in ("sources", "channels"):
        for one in document[what]:
            rate = f"approved {percent(one['approvalRate'])}, ${one['costPerAccepted'] or 0:.2f} each"
            lines.append(style.dim(f"{clean(one['name']):16}  {count(one['predictions'], 'card'):>11}  {rate}"))
    return "\n".join([*lines, f"training: {clean(document['nextTraining'])}"])


def _shift(one: Document) -> str:
    counted = f"{one['approved']} of {one['decided']} approved, before {one['approvalRateBefore']:.0%}"
    return f"{clean(one['kindTitle'])}: {counted}"
