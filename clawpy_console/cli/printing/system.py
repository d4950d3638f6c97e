"""Output of the verbs on the engine as a whole: state, holds, settings, keys, notifications, the installation; and of
the simulation."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from clawpy_console import formats
from clawpy_console.cli.printing import (
    Lines,
    bad,
    bold,
    dim,
    format_fields,
    format_problems,
    format_table,
    format_time,
    good,
    paint,
    paint_session_outcome,
    wants,
)
from clawpy_console.fields import Document, Field
from clawpy_console.fields.cards import HOLD_NAMES, describe_origin, make_absence_fields, make_hold_field
from clawpy_console.formats import count, list_first, short_span
from engine.model import AutonomyState
from engine.text import plain
from engine.wording import describe_first

MAX_PROMPT_CHARS = 100
"""Number of characters of a prompt in a line of the status. `clawpy work` and `clawpy cards` show it whole."""


def format_status(document: Document) -> Lines:
    """State, costs, phase, what waits, what was done while you were away, and the last decisions."""
    yield from _format_state(document)
    yield from format_fields(map(_make_hold_field, document["holds"]))
    yield from _format_present_work(document)
    yield from _format_presence(document)
    if (costs := document["crossPollStatus"])["costThisMonth"]:
        windows = (("hour", "ThisHour", "PerHour"), ("day", "Today", "PerDay"), ("month", "ThisMonth", "PerMonth"))
        parts = (
            f"{name} ${costs[f'cost{window}']:.2f}/{costs[f'costCap{cap_window}']:g}"
            for name, window, cap_window in windows
        )
        yield f"  cost  {'  '.join(parts)}"
    phase, by_itself = document["phase"], document["byItself"]
    if phase["number"] > 0:
        yield f"  phase {phase['number']}, {count(phase['decisions'], 'decision')}; {phase['reason']}"
    elif phase["learning"]:
        yield f"  {phase['learning']}"
    if by_itself["missing"]:  # the first thing that is missing
        yield f"  {by_itself['words'].partition(':')[0]}: {describe_first(by_itself['missing'])}"
    else:
        yield f"  {by_itself['words']}"
    yield from _format_gateway(document.get("gateway") or {})
    if document["keysInFile"]:
        yield f"  {wants(document['keysInFile'])}"
    if fields := list(make_absence_fields(document["since"])):
        yield bold(f"since {format_time(document['since']['at'])}")
        yield from format_fields(fields)
        run_lines = [
            f"  {format_time(run['endedAt'])}  {paint_session_outcome(run)}  "
            f"{describe_origin(run['mode'])}{plain(run['prompt'], MAX_PROMPT_CHARS)}"
            for run in reversed(document["since"]["ran"])
        ]
        yield from list_first(run_lines, MAX_LISTED_SESSIONS)
    if document["decisions"]:
        yield bold("last decisions")
    for decision in document["decisions"]:
        label = DECISION_LABELS.get(decision["signal"], decision["signal"])
        yield dim(f"  {format_time(decision['decidedAt'])}  {label}  {plain(decision['prompt'], MAX_PROMPT_CHARS)}")


MAX_LISTED_SESSIONS = 5
"""The latest sessions that ran while you were away, which are listed."""

DECISION_LABELS = {"original": "edited", "did_himself": "done by you"}
"""Decisions whose stored name is not a word that you would use."""


def _format_state(document: Document) -> Lines:
    """The state of the engine that runs; if none does, that of the last one, if there was one."""
    tone = "wrong" if document["holds"] or document["state"] == AutonomyState.DISABLED else "good"
    is_stopped = any(hold["word"] == "stop" for hold in document["holds"])
    state = "STOPPED" if is_stopped else document["state"]  # as in the console
    since = f"since {format_time(begin)}, {document['cause']}" if (begin := document["stateSince"]) else ""
    if document["engine"] != "none":
        yield f"{paint(tone, '●')} {bold(state)} {since}"
    else:
        yield f"{paint(tone, '○')} {bold('No engine is running.')} `clawpy` or `clawpy run` starts one."
        if since:
            yield f"  last state: {state} {since}"


def _format_present_work(document: Document) -> Lines:
    """What is pending, runs, waits and is wrong."""
    yield f"  {count(document['pending'], 'card')} pending"
    for session in document["running"]:
        yield f"  running  {session['id']}  {plain(session['prompt'], MAX_PROMPT_CHARS)}"
    for waiting in document["waiting"]:
        yield f"  {wants('needs you')}  {waiting['id']}  {plain(waiting['title'], MAX_PROMPT_CHARS)}"
    yield from format_problems(document["problems"])


def _format_presence(document: Document) -> Lines:
    """How long you have been inactive, when the engine checks next, and do not disturb."""
    if document["engine"] != "none":
        next_check = f", next check {format_time(at)}" if (at := document["nextCycleAt"]) else ""
        yield f"  inactive for {short_span(timedelta(seconds=document['silenceSeconds']))}{next_check}"
    if document["dndUntil"]:
        yield from (f"  {line}" for line in format_dnd(document))


def _format_gateway(gateway: Document) -> Lines:
    """The address of the gateway, or why it does not listen; no lines if it is off."""
    if gateway.get("url"):
        listen = f", {count(gateway['clients'], 'client')}" if gateway["clients"] else ""
        yield f"  gateway {gateway['url']}  {dim(gateway['words'] + listen)}"
    elif gateway.get("words", "off") != "off":
        yield f"  {wants('gateway')} {gateway['words']}"


def _make_hold_field(hold: Document) -> Field:
    """A stop or a pause, and how to end it."""
    until, now = hold["until"] and datetime.fromisoformat(hold["until"]), datetime.now(UTC)
    remaining = formats.duration(until - now) if until and until > now else ""
    since = format_time(hold["since"]) if hold["since"] else ""
    return make_hold_field(hold["word"], hold["reason"], since, f"`clawpy resume {hold['word']}`", remaining)


def format_dnd(document: Document) -> Lines:
    """Until when do not disturb lasts."""
    if document["dndUntil"]:
        yield f"{wants('do not disturb')} until {format_time(document['dndUntil'])}; `clawpy dnd --off` ends it"
    else:
        yield f"Do not disturb is off{'; quiet hours still apply' if document['quiet'] else ''}."


def format_resume(document: Document) -> Lines:
    """The holds that ended, and the status now."""
    for hold in document.get("lifted", ()):
        ended_hold = f"{HOLD_NAMES[hold['word']]} of {format_time(hold['since'])}: {hold['reason']}"
        yield f"{good('▶')} Resumed after the {ended_hold}"
    if document.get("fault"):
        yield f"{wants('▲')} The settings are not used: {document['fault']}"
    yield from format_status(document)


def format_stop(document: Document) -> Lines:
    """The sessions and processes that were stopped."""
    ended = document["stopped"]
    headline = f"stopped; {count(len(ended), 'session')} ended" if ended else "stopped; nothing was running"
    if not document["reached"]:
        headline = "stopped; no engine answered. A running engine will find the stop file; the next one starts stopped"
    yield f"{bad('■')} {headline}"
    if document["killed"]:
        yield f"  {count(document['killed'], 'process', 'processes')} ended"
    if document["left"]:
        yield f"  {bad('still running')}: {', '.join(document['left'])}; end them with `kill -9`"
    yield "  Resume with `clawpy resume`."


def format_config(document: Document) -> Lines:
    """One setting or all."""
    if "settings" in document:
        yield from _format_settings("", document["settings"])
        yield dim(f"# {document['file']}")
        return
    yield from _format_settings(document["key"], document["value"])
    yield f"{dim(document['origin'])}; it accepts {document['accepted']}"


def _format_settings(key: str, value: Any) -> Lines:
    """A setting, or a table of settings each with its whole key."""
    if isinstance(value, Mapping) and value:
        for name, member in value.items():
            yield from _format_settings(f"{key}.{_quote_key_part(name)}" if key else name, member)
    elif value is None:
        yield f"# {key} is not set"
    else:
        yield f"{key} = {json.dumps(value, ensure_ascii=False)}"


def _quote_key_part(name: str) -> str:
    """A part of a key as TOML writes it."""
    return name if name.replace("-", "").replace("_", "").isalnum() else f'"{name}"'


def format_check(document: Document) -> Lines:
    """The verdict of the content filter."""
    tone = {"allow": "good", "ask": "wants"}.get(document["verdict"], "wrong")
    reason = f"  {document['reason']}" if document["reason"] else ""
    rule = f" ({document['rule']})" if document["rule"] else ""
    yield paint(tone, document["verdict"]) + reason + rule


def format_key(document: Document) -> Lines:
    """The keys, or what was done with one."""
    if "keys" in document:
        for entry in document["keys"]:
            sign = good("✓") if entry["usable"] else dim("-")
            details = ": ".join(filter(None, (entry["source"], entry["message"])))
            yield f"{sign} {entry['name']:12}  {details}"
        yield dim(f"keyring: {document['keyring']}")
    else:
        yield document["message"]
        if document.get("next"):
            yield from document["next"].split("; ")
    if document.get("badge"):
        yield wants(f"! {document['badge']}")


def format_token(document: Document) -> Lines:
    yield document["token"]


def print_new_token(token: str, source: str) -> None:
    """Print a token that was made now, on a terminal only, never in a file. `source` is where it is stored: "keyring",
    "file", "environment", or "this run" for nowhere."""
    if not token:
        return
    note = f"it is stored in the {source}; `clawpy token` shows it"
    if source == "this run":
        lasts = "`clawpy token new --store file` makes a permanent one, in a file that only you can read"
        note = f"it is valid for this run only; {lasts}, and it is valid here within 15 s"
    terminal = next((stream for stream in (sys.stdout, sys.stderr) if stream.isatty()), None)
    token_text = (
        f"the token, shown once: {token}" if terminal else "created a token; without a terminal it is not shown"
    )
    print(f"{token_text}\n{note}", file=terminal or sys.stderr, flush=True)


HELD_TONES = {"held": "good", "not held": "wrong"}
"""The tone of a result of the sandbox tests."""


def _format_sandbox_table(rungs: Sequence[Document]) -> Lines:
    """A table of what each sandbox holds on this machine."""
    working = [rung for rung in rungs if rung["works"]]
    names = "  ".join(f"{rung['name'] + ('*' if rung['inForce'] else ''):11}" for rung in working)
    yield f"  {'tried in each sandbox':24}  {names}".rstrip()
    for test in working[0]["holds"]:
        held_states = [rung["holds"][test] for rung in working]
        cells = (paint(HELD_TONES.get(state, "grey"), state) + " " * (11 - len(state)) for state in held_states)
        yield "  ".join([f"  {test:24}", *cells]).rstrip()
    yield dim("  * active")


def format_doctor(document: Document) -> Lines:
    """Each check with its fix, the sandboxes, and the paths."""
    signs = {"ok": good("✓"), "warn": wants("!"), "fail": bad("✗")}
    yield f"clawpy {document['version']}, Python {document['python']}"
    for check in document["checks"]:
        message = check["message"].replace("\n", "\n               ")
        yield f"{signs[check['state']]} {check['name']:11}  {message}"
        if check["fix"]:
            yield "               " + dim(check["fix"])
    yield from ("", *_format_sandbox_table(document["rungs"]), "")
    yield from (dim(f"  {name:20} {path}") for name, path in document["paths"].items())


def format_notify(document: Document) -> Lines:
    """Surfaces and what was not delivered, or the result of a test."""
    if "message" in document:
        yield document["message"]
    elif "tested" in document:
        for surface in document["tested"]:
            sign = good("✓") if surface["delivered"] else bad("✗")
            yield f"{sign} {surface['surface']:8} {surface['message']}{_format_fix(surface)}"
    else:
        for name, verb in (("retried", "tried again"), ("dismissed", "dismissed")):
            if name in document:
                yield f"{document[name]} {verb}"
        yield from map(_format_surface, document["surfaces"])
        if until := document["dndUntil"]:
            yield dim(f"do not disturb: only urgent notifications are sent until {format_time(until)}")
        elif document["quiet"]:
            yield dim("quiet hours: only urgent notifications are sent until the morning")


def _format_fix(surface: Document) -> str:
    return dim(f"  {surface['fix']}") if surface["fix"] else ""


def _format_surface(surface: Document) -> str:
    works = bool(surface["service"]) and not surface["message"]
    sign = good("✓") if works else dim("-")
    if surface["undelivered"] or surface["why"]:
        sign = bad("✗")
    service = f"{surface['service']} ({surface['source']})" if surface["service"] else ""
    line = f"{sign} {surface['surface']:8} {'; '.join(filter(None, [service, surface['message']]))}"
    if surface["undelivered"]:
        command = f"clawpy notify retry {surface['surface']}, or dismiss"
        message = f"{surface['undelivered']} not delivered: {surface['why']}; {command}"
        return f"{line}  {bad(message)}"
    return f"{line}  {wants(surface['why'])}" if surface["why"] else line + _format_fix(surface)


def format_simulate(document: Document) -> Lines:
    """The simulated month by day and by rail; `--json` has each block. The same document gives the same text on every
    machine."""
    cards, cost = document["cards"], document["cost"]
    counts = {name: cards[name] for name in ("approved", "dismissed", "expired", "withdrawn", "pending")}
    counts["run by itself"] = cards["executedByAutonomy"]
    yield bold(f"{count(document['days'], 'day')} from {document['from'][:10]}, seed {document['seed']}")
    yield dim(f"real: {document['real']}")
    yield dim(f"made up: {'; '.join(document['madeUp'])}\n")
    fates = ", ".join(f"{number} {fate}" for fate, number in counts.items())
    yield f"cards    {cards['made']} made, {cards['followUps']} of them follow-ups: {fates}"
    yield f"executed {cards['executed']}, {cards['executedByAutonomy']} of them by itself"
    yield f"cost     ${cost['total']:.2f} in all"
    for hold in document["holds"]:
        yield f"{HOLD_NAMES[hold['word']]}  {hold['at'][:16].replace('T', ' ')}: {hold['reason']}"
    yield ""
    days = [
        (day["day"], day["made"], day["approved"], day["dismissed"], day["byAutonomy"], day["blocked"],
         f"${day['cost']:.2f}", day["odd"])
        for day in document["perDay"]
    ]  # fmt: skip
    yield from format_table(("day", "made", "approved", "dismissed", "by itself", "blocked", "cost", "unusual"), days)
    yield ""
    rails = [(rail["rail"], rail["blocked"], _format_example(rail["example"])) for rail in document["rails"]]
    yield from format_table(("rail", "blocked", "for example"), rails)


def _format_example(example: Document | None) -> str:
    return f"“{example['prompt']}”: {example['reason']}" if example else "–"
