"""Operations on the engine as a whole: status, stop, resume, dnd, config, notify, check, doctor, key (SPEC 3.5, 3.7,
7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from engine.api import doctor, keys
from engine.api.crosspoll import figures
from engine.api.documents import Document, document, instant
from engine.api.notify import surfaces
from engine.api.operations.operation import Seconds, Text, operation, require
from engine.config.notify import Surface
from engine.model import RailVerdict, Refusal

if TYPE_CHECKING:
    from engine.api.services import ApiServices


@operation()
def status(engine: ApiServices) -> Document:
    """State, holds, caps, the last decisions and what waits. `engine` is "none" when the one that answers was opened
    for this question: the state is then that of the last engine."""
    autonomy = engine.autonomy
    runs = autonomy.scheduled
    last = None if runs else autonomy.last_state()
    state = last or autonomy.state()
    phase = engine.predictions.phase()
    pending = engine.cards.pending()
    gateway = engine.gateway.state()
    earning = autonomy.requirements(engine.workspaces)
    return {
        "engine": "running" if runs else "none",
        "state": str(state.state),
        "cause": state.cause,
        "stateSince": instant(state.since),
        "since": document(engine.since()),
        "nextChange": instant(state.next_change),
        "holds": document(engine.safety.holds()),
        "crossPollStatus": figures(engine),
        "byItself": {"missing": list(earning.missing), "words": earning.words},
        "phase": {
            "number": phase.number,
            "decisions": phase.decisions,
            "reason": phase.reason,
            "learning": phase.learning,
        },
        "silenceSeconds": int(autonomy.silence().total_seconds()),
        "nextCycleAt": instant(autonomy.next_cycle() if runs else None),
        "quiet": autonomy.quiet(),
        "dndUntil": instant(autonomy.dnd_until()),
        "pending": len(pending),
        "top": document(pending[0]) if pending else None,
        "running": document(engine.sessions.running()),
        "waiting": document(engine.queue()),
        "decisions": [
            {
                "predictionId": decision.prediction_id,
                "signal": decision.signal,
                "prompt": decision.prompt,
                "targetChannel": decision.channel,
                "decidedBy": decision.decided_by,
                "decidedAt": instant(decision.decided_at),
            }
            for decision in engine.decisions.load_newest(5)
        ],
        "workspaces": list(engine.workspaces),
        "keysInFile": engine.keys.badge(),
        "gateway": {"url": gateway.url, "words": gateway.words, "clients": gateway.clients},
    }


@operation()
def stop(engine: ApiServices, reason: Text = "") -> Document:
    """Stop everything until `resume stop` (SPEC 3.7)."""
    running = [view.id for view in engine.sessions.running()]
    try:
        engine.safety.stop(reason or "stopped by you", "clawpy stop")
        engine.autonomy.heard("clawpy stop")  # only now: nothing that may fail comes before a stop
    except Refusal as error:
        message = f"everything was stopped, but the stop could not be recorded: {error.message}"
        fix = f"{error.fix}; until then the stop lasts only as long as this engine runs"
        raise Refusal(error.code, message, fix) from error
    holds = document(engine.safety.holds())
    return {"holds": holds, "stopped": running, "reached": True, "killed": 0, "left": []}


@operation(by_you=True)
def resume(engine: ApiServices, word: Text = "") -> Document:
    """End a hold, by default the only one. `lifted` has it, `holds` those that remain."""
    before = engine.safety.holds()
    if not word:
        words = [hold.word for hold in before]
        if len(words) > 1:
            raise Refusal("which_hold", f"{' and '.join(words)} are active", f"name one: clawpy resume {words[0]}")
        if not words:
            thrown = next((level for level in engine.safety.levels() if level.thrown), None)
            if thrown is not None:  # no hold, and so lifted in another way
                message = f"nothing is stopped or paused, but {thrown.name}: {thrown.words}"
                raise Refusal("not_held", message, thrown.lift)
            raise Refusal("not_held", "nothing is stopped or paused", "see `clawpy status`")
        word = words[0]
    engine.safety.resume(word)
    return status(engine) | {"lifted": document([hold for hold in before if hold.word == word])}


@operation(by_you=True)
def dnd(engine: ApiServices, seconds: Seconds = 7200, off: bool = False) -> Document:
    """Do not disturb for `seconds`, 2 hours by default, or `off`: cards are made, nothing runs by itself."""
    until = engine.autonomy.dnd(None if off else timedelta(seconds=seconds))
    return {"dndUntil": instant(until), "quiet": engine.autonomy.quiet()}


@operation(by_you=True)
def config(
    engine: ApiServices, action: Literal["get", "set", "unset"] = "get", key: Text = "", value: Any = None
) -> Document:
    """Show one setting or all, set or unset one."""
    settings = engine.settings
    if action == "get" and not key:
        return {"settings": settings.document(), "file": str(settings.file)}
    if action == "set":
        settings.set(key, value)
    now = settings.unset(key) if action == "unset" else settings.get(key)
    return {"key": key, "value": now, "origin": settings.origin(key), "accepted": settings.accepted(key)}


@operation(by_you=True)
def notify(
    engine: ApiServices,
    action: Literal["list", "test", "retry", "dismiss"] = "list",
    surface: Literal["phone", "watch", "glasses", "discord", "web", "desktop", ""] = "",
) -> Document:
    """List surfaces and what was not delivered; test, retry or dismiss, for one surface or all (SPEC 10.2)."""
    chosen = Surface(surface) if surface else None
    if action == "test":
        return {"tested": surfaces.test_surfaces(engine, chosen)}
    reply: Document = {}
    if action == "retry":
        reply["retried"] = engine.notify.retry(chosen)
    if action == "dismiss":
        reply["dismissed"] = engine.notify.outbox.dismiss(chosen)
    return reply | {"surfaces": surfaces.list_surfaces(engine), "quiet": engine.autonomy.quiet()}


@operation()
def check(
    engine: ApiServices,
    command: Text = "",
    prompt: Text | None = None,
    lines: Sequence[Any] | None = None,
    cwd: Text = "",
) -> Document:
    """The verdict of the content filter on a command, a prompt, or each of many `lines`."""
    folder = Path(cwd) if cwd else None
    if lines is not None:
        return {"results": [_check_line(engine, line, folder) for line in lines]}
    if prompt is not None:
        return _verdict_document(engine.safety.check_prompt(prompt))
    return _verdict_document(engine.safety.check_command(require("command", command), cwd=folder))


def _check_line(engine: ApiServices, line: Any, cwd: Path | None) -> Document:
    """The verdict on one line of a batch; a bad line is answered with its error and stops nothing."""
    if not isinstance(line, Mapping) or ("command" in line) == ("prompt" in line):
        return Refusal("bad_line", 'each line needs either "command" or "prompt"', '{"command": "ls"}').document()
    identity: Document = {"id": line["id"]} if "id" in line else {}
    text = line.get("command", line.get("prompt"))
    if not isinstance(text, str):
        refusal = Refusal("bad_line", '"command" and "prompt" must be strings', '{"command": "ls"}')
        return identity | refusal.document()
    judge = engine.safety.check_command(text, cwd=cwd) if "command" in line else engine.safety.check_prompt(text)
    return identity | _verdict_document(judge)


def _verdict_document(verdict: RailVerdict) -> Document:
    return {"verdict": verdict.verdict.value, "rule": verdict.rule, "reason": verdict.reason}


@operation(name="doctor")
def examine(engine: ApiServices, workspaces: Sequence[str] = (), online: bool = False) -> Document:
    """What is configured, found and missing, and how to fix it."""
    return doctor.examine(engine.home, workspaces or list(engine.workspaces), online=online)


@operation()
def key(engine: ApiServices, action: Literal["list", "delete", "test"] = "list", name: Text = "") -> Document:
    """List, delete or test keys. `engine.api.keys.keep_key` stores one, outside of the engine."""
    match action:
        case "list":
            return keys.list_keys(engine.home)
        case "delete":
            return keys.delete(engine.home, require("name", name))
    return keys.test(engine.home, require("name", name))
