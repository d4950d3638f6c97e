"""Sends a verb to the engine that holds the home, or to one that is opened for the time of the verb (SPEC 7.5, 9.8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from engine.api.control import Unreachable, ask
from engine.home import Home
from engine.lock import held_refusal, is_free, read_holder
from engine.model import Refusal, Result, Status
from engine.model.text import count
from engine.safety.stop_file import STOPPED, request_stop

if TYPE_CHECKING:
    from engine.api.documents import Document

TIMEOUT_S = 10.0
"""Seconds to wait for an engine that holds the home but does not listen yet, or no longer does."""

TIMEOUTS_S = {"predict": 300.0, "recall": 300.0, "land": 300.0, "branch": 300.0, "doctor": 120.0, "notify": 120.0}
"""Seconds that slow verbs may take; all others have a minute."""

REPEATABLE = frozenset({"cards", "work", "status", "predict", "recall"})
"""Verbs that may be sent again when the answer was lost; no other verb may be carried out twice (SPEC 11.3)."""

STOP_TIMEOUT_S = 1.0
"""Seconds in which the engine answers a stop; after that its sessions are ended without it."""

Opener = Callable[..., Any]
Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]


def call(
    home: Home,
    verb: str,
    arguments: Mapping[str, Any],
    *,
    workspaces: Sequence[str] = (),
    opener: Opener,
) -> Document:
    """Carry out a verb in `home` and return its document. Raises `Refusal`.

    An engine that is opened for this is closed again afterwards, so `approve` then waits for the end of the session.
    `opener` opens it: `engine.open_engine`, or a function that imports it only when it is needed.
    """
    if verb in ("check", "doctor", "key"):
        return _without_engine(home, verb, arguments, workspaces)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        holder = read_holder(home)
        if holder is not None and holder.address:
            timeout = None if arguments.get("wait") else TIMEOUTS_S.get(verb, 60.0)
            try:
                return ask(holder.address, verb, dict(arguments), timeout=timeout)
            except Unreachable as error:
                # Else the note is a dead engine's, or this one is just closing.
                if error.sent and verb not in REPEATABLE:
                    raise Refusal(
                        "no_answer",
                        "the engine stopped before it answered; the verb may have been carried out",
                        "see `clawpy cards --all` and `clawpy work` before you repeat it",
                    ) from error
        try:
            return _with_own_engine(home, verb, arguments, workspaces, opener)
        except Refusal as error:
            if error.code != "home_held":
                raise
        if time.monotonic() > deadline:
            raise held_refusal(home)
        time.sleep(0.05)


@contextmanager
def talk(home: Home, *, workspaces: Sequence[str] = (), opener: Opener) -> Iterator[Ask]:
    """Yield `ask(verb, arguments)`, which asks one engine several times: the one that holds `home`, or one that is
    opened for all questions. `ask` raises `Refusal`."""
    holder = read_holder(home)
    if holder is None or not holder.address or is_free(home):
        try:
            engine = opener(home, workspaces=list(workspaces), start_schedule=False, resume=False)
        except Refusal as refusal:
            if refusal.code != "home_held":
                raise
        else:
            from engine.api.operations import dispatch

            try:
                yield lambda verb, arguments: dispatch(engine, verb, dict(arguments))
                engine.wind_down(finish=True)
                engine.learn()
            finally:
                engine.close()
            return
    yield lambda verb, arguments: call(home, verb, arguments, workspaces=workspaces, opener=opener)


def stop(home: Home, reason: str) -> Document:
    """Stop everything in `home`, whatever state its engine is in (SPEC 3.7).

    The file comes first: the engine finds it within a tenth of a second, or at its next start. Then the engine is
    asked, unless it is itself stopped. Processes of sessions that are left after a second are ended here: `killed`
    counts all that died, `left` names what did not. Raises `Refusal` `unwritable_home` when the file cannot be written
    (a full disk) and no engine answers either; sessions are ended all the same.
    """
    from engine.execution.pid_files import pid_folder
    from engine.execution.process_termination import is_stopped, terminate_sessions

    unwritten: OSError | None = None
    try:
        path = str(request_stop(home.data, reason or STOPPED, "clawpy stop"))
    except OSError as error:
        unwritten, path = error, ""
    answers: list[Document] = []
    refusals: list[Refusal] = []

    def ask_engine() -> None:
        """The engine ends sessions more gently, and records what came of them."""
        holder = read_holder(home)
        if holder is None or not holder.address or is_stopped(holder.pid):
            return
        try:
            answers.append(ask(holder.address, "stop", {"reason": reason} if reason else {}, timeout=STOP_TIMEOUT_S))
        except Unreachable:
            pass
        except Refusal as error:
            if error.code != "no_answer":
                refusals.append(error)

    ended = terminate_sessions(pid_folder(home), ask_engine=ask_engine)
    if refusals:
        raise refusals[0]
    if unwritten is not None and not answers:
        raise Refusal(
            "unwritable_home",
            f"the stop file cannot be written in {home.data}: {unwritten.strerror or unwritten}"
            f" ({count(ended.killed, 'process', 'processes')} ended)",
            "press F12 in the console, or end the engine's process; `clawpy doctor` names it",
        ) from unwritten
    counts = {"killed": ended.killed, "left": list(ended.survivors)}
    if answers:
        return answers[0] | counts
    return {
        "holds": [{"word": "stop", "reason": reason or STOPPED, "since": None, "until": None}],
        "stopped": list(ended.sessions),
        "reached": False,
        "file": path,
        **counts,
    }


def _with_own_engine(
    home: Home, verb: str, arguments: Mapping[str, Any], workspaces: Sequence[str], opener: Opener
) -> Document:
    from engine.api.operations import dispatch

    own = dict(arguments)
    if verb == "approve":
        own["wait"] = True
    options: dict[str, Any] = {"workspaces": list(workspaces), "start_schedule": False, "resume": False}
    try:
        engine = opener(home, **options)
    except Refusal as refusal:
        if verb == "resume" and refusal.code == "bad_config":
            return _resume_on_defaults(home, own, options, opener) | {"fault": refusal.message}
        raise
    try:
        document = dispatch(engine, verb, own)
        # Another verb may have reached this engine meanwhile and approved something: that runs to its end.
        engine.wind_down(finish=True)
        engine.learn()
        return document
    finally:
        engine.close()


def _resume_on_defaults(home: Home, arguments: dict[str, Any], options: dict[str, Any], opener: Opener) -> Document:
    """End a stop although the settings are invalid."""
    from engine.api.operations import dispatch
    from engine.overrides import Overrides

    engine = opener(home, **options, overrides=Overrides(lenient=True))
    try:
        return dispatch(engine, "resume", arguments)
    finally:
        engine.close()


def _without_engine(home: Home, verb: str, arguments: Mapping[str, Any], workspaces: Sequence[str]) -> Document:
    """Verbs that need no engine, and so work while the home is held, broken or hanging."""
    from engine.api.operations import dispatch
    from engine.safety.content import check_command, check_prompt

    looking: Any = SimpleNamespace(
        home=home,
        workspaces=list(workspaces),
        safety=SimpleNamespace(check_command=check_command, check_prompt=check_prompt),
    )
    return dispatch(looking, verb, dict(arguments))


def exit_status(document: Mapping[str, Any]) -> int:
    """The exit status of `approve` (SPEC 9.8): 3 when the session lacked something, 1 when it failed, left failing
    tests, or did nothing so that the card is pending again; else 0."""
    session, card = document.get("session") or {}, document.get("prediction") or {}
    result = session.get("result")
    if result == Result.CANNOT_RUN:
        return 3
    return int(card.get("status") == Status.PENDING or result in (Result.FAILED, Result.CANCELLED))
