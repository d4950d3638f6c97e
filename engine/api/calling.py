"""Sends a verb to the engine that holds the home, or to one that is opened for the time of the verb (SPEC 7.5, 9.8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, cast

from engine.api.control import Unreachable, ask
from engine.home import Home
from engine.lock import held_refusal, is_free, read_holder
from engine.model import Refusal
from engine.model.text import count
from engine.safety.stop_file import STOPPED, request_stop

if TYPE_CHECKING:
    from engine.api.documents import Document
    from engine.api.services import ApiServices

CONNECT_TIMEOUT_S = 10.0
"""Seconds to wait for an engine that holds the home but does not listen yet, or no longer does."""

VERB_TIMEOUTS_S = {"predict": 300.0, "recall": 300.0, "land": 300.0, "branch": 300.0, "doctor": 120.0, "notify": 120.0}
"""Seconds that slow verbs may take."""

DEFAULT_VERB_TIMEOUT_S = 60.0

REPEATABLE_VERBS = frozenset({"cards", "work", "status", "predict", "recall"})
"""Verbs that may be sent again when the answer was lost; no other verb may be carried out twice (SPEC 11.3)."""

OFFLINE_VERBS = frozenset({"check", "doctor", "key"})
"""Verbs that ask no engine, and so work while the home is held, broken or hanging."""

STOP_TIMEOUT_S = 1.0
"""Seconds in which the engine answers a stop; after that its sessions are ended without it."""

Opener = Callable[..., Any]
Ask = Callable[[str, Mapping[str, Any]], "Document"]


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
    if verb in OFFLINE_VERBS:
        from engine.api.operations import dispatch
        from engine.api.services import OfflineServices

        return dispatch(cast("ApiServices", OfflineServices(home, workspaces)), verb, arguments)
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    while True:
        holder = read_holder(home)
        if holder is not None and holder.address:
            timeout = None if arguments.get("wait") else VERB_TIMEOUTS_S.get(verb, DEFAULT_VERB_TIMEOUT_S)
            try:
                return ask(holder.address, verb, dict(arguments), timeout=timeout)
            except Unreachable as error:
                # Else the note is a dead engine's, or this one is just closing.
                if error.sent and verb not in REPEATABLE_VERBS:
                    raise Refusal(
                        "no_answer",
                        "the engine stopped before it answered; the verb may have been carried out",
                        "see `clawpy cards --all` and `clawpy work` before you repeat it",
                    ) from error
        try:
            return _call_own_engine(home, verb, arguments, workspaces, opener)
        except Refusal as error:
            if error.code != "home_held":
                raise
        if time.monotonic() > deadline:
            raise held_refusal(home)
        time.sleep(0.05)


@contextmanager
def connect(home: Home, *, workspaces: Sequence[str] = (), opener: Opener) -> Iterator[Ask]:
    """Yield a function that carries out verbs with one engine: the one that holds `home`, or one that is opened for all
    of them. It raises `Refusal`."""
    holder = read_holder(home)
    with ExitStack() as stack:
        own: Ask | None = None
        if holder is None or not holder.address or is_free(home):
            try:
                own = stack.enter_context(_own_engine(home, workspaces, opener))
            except Refusal as refusal:
                if refusal.code != "home_held":
                    raise
        yield own or (lambda verb, arguments: call(home, verb, arguments, workspaces=workspaces, opener=opener))


def stop(home: Home, reason: str) -> Document:
    """Stop everything in `home`, whatever state its engine is in (SPEC 3.7).

    The file comes first: the engine finds it within a tenth of a second, or at its next start. Then the engine is
    asked, unless it is itself stopped. Processes of sessions that are left after a second are ended here: `killed`
    counts all that died, `left` names what did not. Raises `Refusal` `unwritable_home` when the file cannot be written
    (a full disk) and no engine answers either; sessions are ended all the same.
    """
    from engine.execution.process_termination import pid_folder, terminate_sessions

    unwritten: OSError | None = None
    try:
        path = str(request_stop(home.data, reason or STOPPED, "clawpy stop"))
    except OSError as error:
        unwritten, path = error, ""
    answer: Document | Refusal | None = None

    def ask_engine() -> None:
        nonlocal answer
        answer = _ask_to_stop(home, reason)

    ended = terminate_sessions(pid_folder(home), ask_engine=ask_engine)
    if isinstance(answer, Refusal):
        raise answer
    counts = {"killed": ended.killed, "left": list(ended.survivors)}
    if answer is not None:
        return answer | counts
    if unwritten is not None:
        raise Refusal(
            "unwritable_home",
            f"the stop file cannot be written in {home.data}: {unwritten.strerror or unwritten}"
            f" ({count(ended.killed, 'process', 'processes')} ended)",
            "press F12 in the console, or end the engine's process; `clawpy doctor` names it",
        ) from unwritten
    return {
        "holds": [{"word": "stop", "reason": reason or STOPPED, "since": None, "until": None}],
        "stopped": list(ended.sessions),
        "reached": False,
        "file": path,
        **counts,
    }


def _ask_to_stop(home: Home, reason: str) -> Document | Refusal | None:
    """Ask the engine to stop: it ends sessions more gently, and records what came of them. Returns its answer or its
    refusal, None when there is no engine or it does not answer."""
    from engine.execution.process_termination import is_stopped

    holder = read_holder(home)
    if holder is None or not holder.address or is_stopped(holder.pid):
        return None
    try:
        return ask(holder.address, "stop", {"reason": reason} if reason else {}, timeout=STOP_TIMEOUT_S)
    except Unreachable:
        return None
    except Refusal as refusal:
        return None if refusal.code == "no_answer" else refusal


@contextmanager
def _own_engine(home: Home, workspaces: Sequence[str], opener: Opener, *, lenient: bool = False) -> Iterator[Ask]:
    """Open an engine for some verbs, and yield the function that carries them out. `lenient`: invalid settings are
    replaced by the defaults, and nothing is learned, because that depends on the settings."""
    from engine.api.operations import dispatch
    from engine.services import Overrides

    options: dict[str, Any] = {"overrides": Overrides(lenient=True)} if lenient else {}
    with closing(opener(home, workspaces=list(workspaces), start_schedule=False, resume=False, **options)) as engine:
        yield lambda verb, arguments: dispatch(engine, verb, arguments)
        if not lenient:
            # Another verb may have reached this engine meanwhile and approved something: that runs to its end.
            engine.wind_down(finish=True)
            engine.learn()


def _call_own_engine(
    home: Home, verb: str, arguments: Mapping[str, Any], workspaces: Sequence[str], opener: Opener
) -> Document:
    if verb == "approve":
        arguments = {**arguments, "wait": True}
    try:
        with _own_engine(home, workspaces, opener) as ask_own:
            return ask_own(verb, arguments)
    except Refusal as refusal:
        if verb != "resume" or refusal.code != "bad_config":
            raise
        with _own_engine(home, workspaces, opener, lenient=True) as ask_own:
            return ask_own("resume", arguments) | {"fault": refusal.message}
