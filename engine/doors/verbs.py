"""Every verb once, as a function from an engine and arguments to a JSON document (SPEC 9.8).

The command line, the control socket and later the gateway all come through `dispatch`; none has logic of its own.
What is not done raises `Refusal`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.doors import (
    asking,
    conversing,
    deciding,
    doctor,
    guiding,
    measuring,
    recalling,
    remembering,
    training,
    wire,
)
from engine.doors import keys as key_door
from engine.doors.arguments import Arguments
from engine.doors.find import Found, find
from engine.doors.wire import Document
from engine.values import ChangeState, RailVerdict, Refusal, SessionState, sanitise

if TYPE_CHECKING:
    from engine.engine import Engine

TAIL = 40
"""So many lines of a transcript `work ID` shows unless asked for another number."""

Work = Callable[["Engine", Arguments], Document]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: what it does, the arguments it knows, and whether using it means that the operator is there."""

    work: Work
    takes: frozenset[str]
    speaks: bool


def dispatch(engine: Engine, verb: str, arguments: Any) -> Document:
    """Do `verb`. Raises `Refusal`: `unknown_verb`, `bad_arguments`, or whatever the verb refuses."""
    known = VERBS.get(verb) if isinstance(verb, str) else None
    if known is None:
        raise Refusal("unknown_verb", f"there is no verb {sanitise(str(verb))[:40]!r}", "one of " + ", ".join(VERBS))
    read = Arguments(arguments, known=known.takes)
    action = read.text("action") if "action" in known.takes else ""
    if known.speaks and ("action" not in known.takes or action not in ("", "list", "show", "get")):
        engine.autonomy.heard(f"clawpy {verb}")
    return known.work(engine, read)


# -- cards


def predict(engine: Engine, arguments: Arguments) -> Document:
    """One cycle now; then what is pending."""
    workspaces = arguments.texts("workspaces") or list(engine.workspaces)
    report = engine.predictions.run_cycle(workspaces=workspaces, requested=True)
    return _pending(engine, workspaces, arguments) | {
        "created": [one.id for one in report.created],
        "withdrawn": list(report.withdrawn),
        "errors": list(report.errors),
        "seconds": round(report.seconds, 3),
    }


def cards(engine: Engine, arguments: Arguments) -> Document:
    """What is pending in the workspaces (all of them when none is named), or with `all` the latest of any status.

    Of workspaces that were not asked for, `elsewhere` counts what is pending, by workspace, where there is any.
    """
    if arguments.flag("all"):
        limit = int(arguments.number("limit", 50, least=1, most=1000))
        workspaces = arguments.texts("workspaces")
        recent = [one for one in engine.cards.recent(limit) if not workspaces or one.assignment.workspace in workspaces]
        return {"predictions": [wire.card(one) for one in recent]}
    return _pending(engine, arguments.texts("workspaces"), arguments)


def _pending(engine: Engine, workspaces: list[str], arguments: Arguments) -> Document:
    channel = arguments.maybe("channel")
    known = engine.cards.pending(channel=channel, include_snoozed=arguments.flag("snoozed"))
    pending = [one for one in known if not workspaces or one.assignment.workspace in workspaces]
    places = [one.assignment.workspace for one in known]
    elsewhere = Counter(one for one in places if workspaces and one not in workspaces)
    if arguments.flag("shown"):
        # Only what a person looked at may later count as passed over (SPEC 2.9).
        engine.cards.mark_shown([one.id for one in pending])
    found: Document = {"predictions": [wire.card(one) for one in pending]}
    return found | {"elsewhere": dict(elsewhere.most_common())} if elsewhere else found


def propose(engine: Engine, arguments: Arguments) -> Document:
    """A card of the operator's own; with `continues`, one that goes on with a finished session."""
    named = arguments.maybe("continues")
    former = find(engine, named).session if named is not None else None
    if named is not None and former is None:
        raise Refusal("no_session", "nothing was run for this card yet", "there is nothing to continue")
    one = engine.cards.propose(
        arguments.needed("text"),
        workspace=former.workspace if former else arguments.needed("workspace"),
        channel=arguments.maybe("channel"),
        continues=former.id if former else "",
    )
    return {"predictions": [wire.card(one)]}


def approve(engine: Engine, arguments: Arguments) -> Document:
    """Approve and start; with `wait` answer when the session has ended."""
    found = find(engine, arguments.needed("id"))
    one = engine.cards.approve(found.card_id, edit=arguments.maybe("edit"), parameters=arguments.mapping("parameters"))
    if not arguments.flag("wait") or one.session_id is None:
        return _about(engine, found.card_id)
    engine.sessions.wait(one.session_id, None)
    return _with_transcript(engine, find(engine, found.card_id), TAIL)


def dismiss(engine: Engine, arguments: Arguments) -> Document:
    """Turn a card down."""
    card_id = find(engine, arguments.needed("id")).card_id
    engine.cards.dismiss(card_id)
    return _about(engine, card_id)


def snooze(engine: Engine, arguments: Arguments) -> Document:
    """Put a card off, 2 h unless said."""
    card_id = find(engine, arguments.needed("id")).card_id
    seconds = arguments.number("seconds", 7200, least=1, most=30 * 86400)
    engine.cards.snooze(card_id, span=timedelta(seconds=seconds))
    return _about(engine, card_id)


def undo(engine: Engine, arguments: Arguments) -> Document:
    """Take back a decision, end its session, or reverse its landing (SPEC 2.7)."""
    card_id = find(engine, arguments.needed("id")).card_id
    engine.cards.undo(card_id)
    return _about(engine, card_id)


def _about(engine: Engine, card_id: str) -> Document:
    return _shown(find(engine, card_id))


def _shown(found: Found) -> Document:
    return {
        "prediction": None if found.card is None else wire.card(found.card),
        "session": wire.session(found.session),
        "changeSet": wire.change_set(found.change_set),
    }


def _with_transcript(engine: Engine, found: Found, lines: int) -> Document:
    document = _shown(found)
    if found.session is not None and lines:
        after = max(0, found.session.lines - lines)
        transcript = engine.sessions.transcript(found.session.id, after=after, limit=lines)
        document["transcript"] = [wire.line(one) for one in transcript]
    return document


# -- work


def work(engine: Engine, arguments: Arguments) -> Document:
    """Sessions and what waits to be landed; with an id one of them, with the end of its transcript.

    Of workspaces that were not asked for, `elsewhere` counts the sessions, by workspace.
    """
    wanted = arguments.maybe("id")
    if wanted is None:
        workspaces = arguments.texts("workspaces")
        limit = int(arguments.number("limit", 20, least=1, most=1000))
        known = engine.sessions.list(limit=1000 if workspaces else limit)
        sessions = [one for one in known if not workspaces or one.workspace in workspaces][:limit]
        elsewhere = Counter(one.workspace for one in known if workspaces and one.workspace not in workspaces)
        changes = [
            one
            for one in engine.changes.list(state=ChangeState.WAITING, limit=1000 if workspaces else limit)
            if not workspaces or one.workspace in workspaces
        ][:limit]
        return {
            "sessions": [wire.session(one) for one in sessions],
            "changeSets": [wire.change_set(one) for one in changes],
            "elsewhere": dict(elsewhere.most_common()),
        }
    found = find(engine, wanted)
    document = _with_transcript(engine, found, int(arguments.number("lines", TAIL, least=0, most=2000)))
    if arguments.flag("diff") and found.change_set is not None:
        document["diff"] = [
            {
                "path": file.path,
                "status": file.status,
                "oldPath": file.old_path or "",
                "binary": file.binary,
                "hunks": file.hunks,
            }
            for file in engine.changes.diff(found.change_set.id)
        ]
    return document


def land(engine: Engine, arguments: Arguments) -> Document:
    """Bring a change set into the working tree."""
    found = find(engine, arguments.needed("id"))
    engine.changes.land(found.change_set_id)
    return _shown(find(engine, found.change_set_id))


def branch(engine: Engine, arguments: Arguments) -> Document:
    """Commit a change set onto a branch of its own."""
    found = find(engine, arguments.needed("id"))
    engine.changes.branch(found.change_set_id)
    return _shown(find(engine, found.change_set_id))


def discard(engine: Engine, arguments: Arguments) -> Document:
    """Throw a change set away; of what was interrupted and left none, acknowledge the interruption."""
    found = find(engine, arguments.needed("id"))
    if found.session is not None and found.session.state is SessionState.INTERRUPTED:
        engine.acknowledge(found.session.id)
        if found.change_set is None:
            return _shown(found)
    engine.changes.discard(found.change_set_id)
    return _shown(find(engine, found.change_set_id))


# -- state and holds


def status(engine: Engine, arguments: Arguments) -> Document:
    """State, holds, caps, the last decisions and what waits. `engine` is "none" where none runs but the one that
    answers: the state is then the one that the last engine left."""
    runs = engine.autonomy.scheduled
    last = None if runs else engine.autonomy.left()
    state = last or engine.autonomy.state()
    phase = engine.predictions.phase()
    triggers, last_trigger = engine.safety.triggers()
    pending = engine.cards.pending()
    return {
        "engine": "running" if runs else "none",
        "state": str(state.state),
        "cause": state.cause,
        "stateSince": wire.instant(state.since),
        "since": wire.since(engine.since()),
        "nextChange": wire.instant(state.next_change),
        "holds": [wire.hold(one) for one in engine.safety.holds()],
        "crossPollStatus": {
            "enabled": engine.settings.current.cross_poll_enabled,
            "lastTriggerAt": wire.instant(last_trigger),
            "totalTriggers": triggers,
            "loopDetectionCount": engine.safety.loop_detection_count(),
            **wire.costs(engine.safety.costs.state()),
        },
        "byItself": wire.by_itself(engine.autonomy.earning(engine.workspaces)),
        "phase": {"number": phase.number, "decisions": phase.decisions, "reason": phase.reason},
        "silenceSeconds": int(engine.autonomy.silence().total_seconds()),
        "nextCycleAt": wire.instant(engine.autonomy.next_cycle() if runs else None),
        "quiet": engine.autonomy.quiet(),
        "dndUntil": wire.instant(engine.autonomy.dnd_until()),
        "pending": len(pending),
        "top": wire.card(pending[0]) if pending else None,
        "running": [wire.session(one) for one in engine.sessions.running()],
        "waiting": [wire.waiting(one) for one in engine.queue()],
        "decisions": [
            {
                "predictionId": one.prediction_id,
                "signal": one.signal.value,
                "prompt": one.prompt,
                "targetChannel": one.channel,
                "decidedBy": one.decided_by.value,
                "decidedAt": wire.instant(one.decided_at),
            }
            for one in engine.feedback.recent(5)
        ],
        "workspaces": list(engine.workspaces),
        "keysInFile": engine.keys.badge(),
    }


def stop(engine: Engine, arguments: Arguments) -> Document:
    """Stop everything and keep it stopped until `resume stop` (SPEC 3.7)."""
    running = [one.id for one in engine.sessions.running()]
    try:
        engine.safety.stop(arguments.text("reason") or "stopped by the operator", "clawpy stop")
        engine.autonomy.heard("clawpy stop")  # only now: nothing that may fail comes before a stop
    except Refusal as error:
        said = f"everything was stopped, but it could not be written down: {error.message}"
        raise Refusal(error.code, said, f"{error.fix}; until then it holds only while this engine runs") from error
    return {"holds": [wire.hold(one) for one in engine.safety.holds()], "stopped": running, "reached": True}


def resume(engine: Engine, arguments: Arguments) -> Document:
    """Lift one hold by its word. Without a word the only one there is."""
    word = arguments.text("word")
    if not word:
        words = [one.word for one in engine.safety.holds()]
        if len(words) > 1:
            raise Refusal("which_hold", f"{' and '.join(words)} are in force", f"name one: clawpy resume {words[0]}")
        if not words:
            raise Refusal("not_held", "nothing is stopped or paused", "see `clawpy status`")
        word = words[0]
    engine.safety.resume(word)
    return status(engine, Arguments({}, known=frozenset()))


def dnd(engine: Engine, arguments: Arguments) -> Document:
    """Do not disturb for `seconds`, 2 h unless said, or `off`: cards are made, nothing executes by itself."""
    seconds = arguments.number("seconds", 7200, least=1, most=30 * 86400)
    until = engine.autonomy.dnd(None if arguments.flag("off") else timedelta(seconds=seconds))
    return {"dndUntil": wire.instant(until), "quiet": engine.autonomy.quiet()}


def handover(engine: Engine, arguments: Arguments) -> Document:
    """A headless engine gives its home to whoever asks: what runs is finished first, or with `now` handed back; then
    it ends. The answer comes at once (SPEC 7.5)."""
    if engine.handover is None:
        raise Refusal("not_headless", "the engine of this home is no headless one", "close its console instead")
    running = [wire.session(one) for one in engine.sessions.running()]
    engine.handover(not arguments.flag("now"))
    return {"finishing": not arguments.flag("now"), "running": running}


# -- organisation, tasks, settings


def agents(engine: Engine, arguments: Arguments) -> Document:
    """list, show, add, move, retire, tier; serve: let a coding agent of the operator's serve a channel."""
    action = arguments.choice("action", ("list", "show", "add", "move", "retire", "tier", "serve"), "list")
    people = engine.hierarchy
    if action == "list":
        return {"agents": [wire.agent(one) for one in people.list()], "coding": _coding(engine)}
    if action == "serve":
        channel, name = arguments.needed("channel"), arguments.needed("id")
        engine.hiring.hire(name, channel)
        return {"channel": channel, "coding": [one for one in _coding(engine) if one["name"] == name]}
    agent_id = arguments.needed("id")
    if action == "retire":
        one = people.get(agent_id)
        people.retire(agent_id)
        return {"agent": wire.agent(one), "retired": True}
    if action == "add":
        people.add(
            agent_id,
            reports_to=arguments.needed("reportsTo"),
            title=arguments.text("title"),
            archetype=arguments.text("archetype"),
            domain=arguments.text("domain"),
        )
    if action == "move":
        people.move(agent_id, arguments.needed("reportsTo"))
    if action == "tier":
        guiding.assign_tier(engine, agent_id, arguments)
    leaders, reason = people.chain(agent_id)
    document: Document = {"agent": wire.agent(people.get(agent_id)), "chain": leaders, "chainEnd": reason}
    return document | ({"soul": people.soul(agent_id)} if action == "show" else {})


def _coding(engine: Engine) -> list[Document]:
    """The coding agents that are installed or in the settings, and the channels they serve."""
    return [wire.coding_agent(one, engine.settings.current) for one in engine.hiring.known()]


def tasks(engine: Engine, arguments: Arguments) -> Document:
    """list, add, done."""
    action = arguments.choice("action", ("list", "add", "done"), "list")
    if action == "add":
        channel = arguments.text("channel")
        if channel and channel not in engine.settings.current.channels:
            raise Refusal(
                "unknown_channel",
                f"there is no channel {sanitise(channel)}",
                "one of " + ", ".join(engine.settings.current.channels),
            )
        one = engine.tasks.add(
            arguments.needed("title"),
            channel=channel,
            workspace=arguments.text("workspace"),
            needs=arguments.texts("needs"),
        )
        return {"task": wire.task(one)}
    if action == "done":
        return {"task": wire.task(engine.tasks.done(arguments.needed("id")))}
    found = engine.tasks.list(
        workspace=arguments.maybe("workspace"),
        state=arguments.maybe("state"),
        limit=int(arguments.number("limit", 100, least=1, most=1000)),
    )
    return {"tasks": [wire.task(one) for one in found]}


def config(engine: Engine, arguments: Arguments) -> Document:
    """get (one key or all), set, unset."""
    action = arguments.choice("action", ("get", "set", "unset"), "get")
    key = arguments.text("key")
    settings = engine.settings
    if action == "get" and not key:
        return {"settings": settings.document(), "file": str(settings.file)}
    if action == "set":
        settings.set(key, arguments.anything("value"))
    if action == "unset":
        settings.unset(key)
    return {
        "key": key,
        "value": settings.get(key),
        "origin": settings.origin(key),
        "accepted": settings.accepted(key),
    }


# -- looking


def check(engine: Engine, arguments: Arguments) -> Document:
    """The content filter on a command, a prompt, or with `lines` on many of them, each answered in its place."""
    cwd = Path(arguments.text("cwd")) if arguments.text("cwd") else None
    if arguments.anything("lines") is not None:
        return {"results": [_check_line(engine, line, cwd) for line in arguments.items("lines")]}
    if arguments.anything("prompt") is not None:
        return _judged(engine.safety.check_prompt(arguments.text("prompt")))
    return _judged(engine.safety.check_command(arguments.needed("command"), cwd=cwd))


def _check_line(engine: Engine, line: Any, cwd: Path | None) -> Document:
    """One line of a batch; a bad one is answered with its error and stops nothing."""
    if not isinstance(line, Mapping) or ("command" in line) == ("prompt" in line):
        return wire.refusal(Refusal("bad_line", 'a line has either "command" or "prompt"', '{"command": "ls"}'))
    kept: Document = {"id": line["id"]} if "id" in line else {}
    text = line.get("command", line.get("prompt"))
    if not isinstance(text, str):
        return kept | wire.refusal(Refusal("bad_line", '"command" and "prompt" are texts', '{"command": "ls"}'))
    judge = engine.safety.check_command(text, cwd=cwd) if "command" in line else engine.safety.check_prompt(text)
    return kept | _judged(judge)


def _judged(one: RailVerdict) -> Document:
    return {"verdict": one.verdict.value, "rule": one.rule, "reason": one.reason}


def examine(engine: Engine, arguments: Arguments) -> Document:
    """What is configured, found, missing, and how to mend it."""
    workspaces = arguments.texts("workspaces") or list(engine.workspaces)
    return doctor.examine(engine.home, workspaces, online=arguments.flag("online"))


def key(engine: Engine, arguments: Arguments) -> Document:
    """list, delete, test. To keep one is no verb of an engine: see `engine.doors.keys.keep_key`."""
    return key_door.key(engine.home, arguments)


def _verb(work: Work, *takes: str, speaks: bool = False) -> Verb:
    return Verb(work, frozenset(takes), speaks)


VERBS: Mapping[str, Verb] = {
    "predict": _verb(predict, "workspaces", "channel", "snoozed", "shown", speaks=True),
    "cards": _verb(cards, "workspaces", "channel", "snoozed", "all", "limit", "shown"),
    "propose": _verb(propose, "text", "workspace", "channel", "continues", speaks=True),
    "approve": _verb(approve, "id", "edit", "parameters", "wait", speaks=True),
    "dismiss": _verb(dismiss, "id", speaks=True),
    "snooze": _verb(snooze, "id", "seconds", speaks=True),
    "undo": _verb(undo, "id", speaks=True),
    "work": _verb(work, "id", "workspaces", "limit", "lines", "diff"),
    "land": _verb(land, "id", speaks=True),
    "branch": _verb(branch, "id", speaks=True),
    "discard": _verb(discard, "id", speaks=True),
    "xray": _verb(conversing.xray, "id", "call"),
    "reply": _verb(conversing.reply, "id", "text", speaks=True),
    "permissions": _verb(asking.permissions, "action", "id", "session", "all", "limit", speaks=True),
    "status": _verb(status),
    "stop": _verb(stop, "reason"),
    "resume": _verb(resume, "word", speaks=True),
    "dnd": _verb(dnd, "seconds", "off", speaks=True),
    "handover": _verb(handover, "now", speaks=True),
    "agents": _verb(
        agents, "action", "id", "reportsTo", "title", "archetype", "domain", "channel", "tier", speaks=True
    ),
    "guidance": _verb(guiding.guidance, "id", "reportsTo"),
    "learnings": _verb(guiding.learnings, "action", "workspace", speaks=True),
    "bubbles": _verb(guiding.bubbles, "action", "state", "agent", "limit", speaks=True),
    "tasks": _verb(tasks, "action", "id", "title", "channel", "workspace", "needs", "state", "limit", speaks=True),
    "config": _verb(config, "action", "key", "value", speaks=True),
    "remember": _verb(remembering.remember, "lines", "first", "source", "settle"),
    "drafts": _verb(deciding.drafts, "action", "id", "edit", speaks=True),
    "forget": _verb(deciding.forget, "what", "yes", speaks=True),
    "recall": _verb(recalling.recall, "query", "k", "agent", "workspaces", "lines"),
    "check": _verb(check, "command", "prompt", "lines", "cwd"),
    "export": _verb(training.export, "what", "format", speaks=True),
    "metrics": _verb(measuring.metrics, "days"),
    "train": _verb(training.train, "action", "file", speaks=True),
    "key": _verb(key, "action", "name"),
    "doctor": _verb(examine, "workspaces", "online"),
}
