"""Operations on the engine as a whole: content filter, status, stops, settings, notifications, installation (SPEC 3.5,
3.7, 7.3, 7.6, 9.8, 10, 11.1).

`status` is for people; `cross_poll_status`, `health` and `configure` are for programs. A stop is carried out first and
recorded after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from engine.api.documents import Document, document, instant
from engine.api.operations import ACCEPT_WHOLE_FLOAT, Seconds, Text, operation, quiet_operation, require_argument
from engine.config import ACP_PREFIX, Dollars, Hour, Milliseconds
from engine.config.external_sections import Surface
from engine.config.settings_file import describe_accepted, parse_key
from engine.model import Hold, HoldKind, Refusal
from engine.safety.content.commands import check_command
from engine.safety.content.prompts import check_prompt
from engine.safety.content.rulebook import make_own_rules
from engine.settings_store import SettingsStore
from engine.text import sanitise

if TYPE_CHECKING:
    from engine.api.operations import ApiServices, OfflineServices
    from engine.learning.decisions.decisions import DecisionRow
    from engine.services import Services


MAX_STATUS_DECISIONS = 5
"""Maximum number of decisions in `status`, newest first."""


# -- the content filter


@quiet_operation
def check(engine: OfflineServices, command: Text = "", prompt: Text | None = None) -> Document:
    """The verdict of the content filter on a command or a prompt, with the operator's own rules."""
    if bool(command) == (prompt is not None):
        raise Refusal("bad_arguments", "give a command or a prompt", '{"command": "ls"}')
    content = SettingsStore(engine.home.config_file).current.content
    own_rules = make_own_rules(content.allow, content.block)
    verdict = check_command(command, own=own_rules) if prompt is None else check_prompt(prompt, own=own_rules)
    return {"verdict": verdict.verdict.value, "rule": verdict.rule, "reason": verdict.reason}


# -- status


def make_trigger_figures(engine: Services) -> Document:
    """Triggers, loops and costs against caps. `enabled`: neither the settings nor `configure` stop it."""
    triggers, last_trigger = engine.safety.count_passed_triggers()
    return {
        "enabled": all(
            not level.is_active for level in engine.safety.kill_switch.list_levels() if level.name in ("config", "api")
        ),
        "lastTriggerAt": instant(last_trigger),
        "totalTriggers": triggers,
        "loopDetectionCount": engine.safety.count_stopped_loops(),
        **document(engine.safety.costs.read_state()),
    }


@quiet_operation
def cross_poll_status(engine: Services) -> Document:
    """State, holds, costs and triggers, and the number of pending cards."""
    state = engine.autonomy.update_state()
    return make_trigger_figures(engine) | {
        "state": str(state.state),
        "cause": state.cause,
        "holds": document(engine.safety.kill_switch.list_holds()),
        "pending": len(engine.cards.list_pending()),
    }


@quiet_operation
def status(engine: ApiServices) -> Document:
    """State, holds, caps, the last decisions and what waits. `engine` is "none" when the one that answers was opened
    for this question: the state is then that of the last engine. If none has run yet, it is the one with which the
    first would begin, and `stateSince` is null."""
    autonomy = engine.autonomy
    runs = autonomy.schedule.is_running
    state = autonomy.update_state() if runs else autonomy.read_last_state()
    pending = engine.cards.list_pending()
    gateway = engine.gateway.state()
    requirements = autonomy.describe_requirements(engine.workspaces)
    return {
        "engine": "running" if runs else "none",
        "state": str(state.state),
        "cause": state.cause,
        "stateSince": instant(state.since),
        "since": document(engine.read_activity()),
        "nextChange": instant(state.next_change),
        "holds": document(engine.safety.kill_switch.list_holds()),
        "crossPollStatus": make_trigger_figures(engine),
        "byItself": {"missing": list(requirements.missing), "words": requirements.words},
        "phase": document(engine.embedded_twin.read_phase()),
        "silenceSeconds": int(autonomy.measure_silence().total_seconds()),
        "nextCycleAt": instant(autonomy.find_next_cycle() if runs else None),
        "quiet": bool(autonomy.find_quiet_reason()),
        "dndUntil": instant(autonomy.find_dnd_end()),
        "pending": len(pending),
        "problems": list_problems(engine),
        "top": document(pending[0]) if pending else None,
        "running": document(engine.sessions.list_running()),
        "waiting": document(engine.list_waiting()),
        "decisions": list(map(_make_decision_document, engine.decisions.load_newest(MAX_STATUS_DECISIONS))),
        "workspaces": list(engine.workspaces),
        "keysInFile": engine.keys.find_file_warning(),
        "settingsFault": engine.settings.fault,
        "gateway": {"url": gateway.url, "words": gateway.description, "clients": gateway.clients},
    }


def list_problems(engine: Services, workspaces: Sequence[str] = ()) -> list[Document]:
    """Why there may be no cards in these workspaces, or all, or else the newest problem that still holds there."""
    return [
        {"workspace": workspace, "text": remark}
        for workspace, remark in engine.checks.read_remarks().items()
        if not workspaces or workspace in workspaces
    ]


def _make_decision_document(decision: DecisionRow) -> Document:
    return {
        "predictionId": decision.prediction_id,
        "signal": decision.signal,
        "prompt": decision.prompt,
        "targetChannel": decision.channel,
        "decidedBy": decision.decided_by,
        "decidedAt": instant(decision.decided_at),
    }


def make_reply_head(engine: Services) -> Document:
    """What replies to programs have in common: the time, and the state, costs and triggers."""
    return {"timestamp": instant(engine.clock.now()), "crossPollStatus": cross_poll_status(engine)}


@quiet_operation
def health(engine: Services) -> Document:
    """That the engine answers, and how it stands."""
    return {"status": "ok", "version": engine.version, **make_reply_head(engine)}


# -- holds


@quiet_operation
def stop(engine: ApiServices, reason: Text = "") -> Document:
    """Stop everything until `resume stop` (SPEC 3.7)."""
    running = [view.id for view in engine.sessions.list_running()]
    engine.safety.kill_switch.stop(reason or "stopped by you", "clawpy stop")
    engine.autonomy.note_activity()  # after the stop, because this may fail
    holds = document(engine.safety.kill_switch.list_holds())
    # `control.stop` fills `killed` and `left`: it ends the processes that this engine could not end.
    return {"holds": holds, "stopped": running, "reached": True, "killed": 0, "left": []}


@operation
def resume(engine: ApiServices, word: Text = "") -> Document:
    """End a hold, by default the only one that a command ends. `lifted` has it, `holds` those that remain."""
    former_holds = engine.safety.kill_switch.list_holds()
    word = word or _find_word_of_only_hold(former_holds)
    engine.safety.kill_switch.resume(word)
    return status(engine) | {"lifted": document([hold for hold in former_holds if hold.word == word])}


def _find_word_of_only_hold(holds: Sequence[Hold]) -> str:
    """The word of the only active hold; `config`, which the settings end, only if there is no other.

    Raises `Refusal`: `which_hold` for several, `not_held` for none."""
    hold_words: list[HoldKind] = [hold.word for hold in holds if hold.word is not HoldKind.CONFIG] or [
        hold.word for hold in holds
    ]
    if len(hold_words) > 1:
        raise Refusal(
            "which_hold", f"{' and '.join(hold_words)} are active", f"name one: clawpy resume {hold_words[0]}"
        )
    if not hold_words:
        raise Refusal("not_held", "nothing is stopped or paused", "see `clawpy status`")
    return hold_words[0]


@operation
def dnd(engine: ApiServices, seconds: Seconds = 7200, off: bool = False) -> Document:
    """Do not disturb for `seconds`, 2 hours by default, or `off`: cards are made, nothing runs by itself."""
    until = engine.autonomy.set_dnd(None if off else timedelta(seconds=seconds))
    return {"dndUntil": instant(until), "quiet": bool(engine.autonomy.find_quiet_reason())}


# -- settings


@operation
def config(
    engine: ApiServices, action: Literal["get", "set", "unset"] = "get", key: Text = "", value: Any = None
) -> Document:
    """Show one setting or all, set or unset one."""
    settings = engine.settings
    if action == "get" and not key:
        return {"settings": settings.make_document(), "file": str(settings.file), "settingsFault": settings.fault}
    if action == "set":
        _refuse_missing_agent(engine, parse_key(key), str(value))
        settings.set(key, value)
    current_value = settings.unset(key) if action == "unset" else settings.get(key)
    return {
        "key": key,
        "value": current_value,
        "origin": settings.find_origin(key),
        "accepted": describe_accepted(parse_key(key)),
        "settingsFault": settings.fault,
    }


def _refuse_missing_agent(engine: ApiServices, key: Sequence[str], value: str) -> None:
    """Raises `Refusal` `unknown_agent` for a runner of a channel that the settings do not have."""
    name = value.removeprefix(ACP_PREFIX)
    if key[0] == "channels" and key[-1] == "runner" and name not in (value, *engine.settings.current.acp):
        message = f"there is no coding agent {sanitise(name)!r} in the settings"
        raise Refusal("unknown_agent", message, f"clawpy agents serve {key[1]} NAME adds one that is installed")


WholeHour = Annotated[Hour, ACCEPT_WHOLE_FLOAT]


@operation
def configure(
    engine: Services,
    enabled: bool | None = None,
    interval_ms: Annotated[Milliseconds, ACCEPT_WHOLE_FLOAT] | None = None,
    cost_cap_per_hour: Dollars | None = None,
    auto_execute_threshold: Annotated[float, Field(ge=0.8, le=1)] | None = None,
    quiet_hours_start: WholeHour | None = None,
    quiet_hours_end: WholeHour | None = None,
) -> Document:
    """Change settings for this run only, all or none; a restart brings the file's back. Dollars, milliseconds, hours of
    the local day. Holds stay until they are resumed."""
    values = {
        "cross_poll_interval_ms": interval_ms,
        "cross_poll_cost_cap_per_hour": cost_cap_per_hour,
        "cross_poll_auto_execute_threshold": auto_execute_threshold,
        "quiet_hours_start": quiet_hours_start,
        "quiet_hours_end": quiet_hours_end,
    }
    if changed := {name: value for name, value in values.items() if value is not None}:
        engine.settings.set_for_this_run(changed)
    if enabled is not None:  # last, because this cannot fail
        engine.safety.kill_switch.set_enabled(enabled)
    status_now, settings = cross_poll_status(engine), engine.settings.current
    return {
        "config": {
            "enabled": status_now["enabled"],
            "intervalMs": settings.cross_poll_interval_ms,
            "costCapPerHour": settings.cross_poll_cost_cap_per_hour,
            "autoExecuteThreshold": settings.cross_poll_auto_execute_threshold,
            "quietHoursStart": settings.quiet_hours_start,
            "quietHoursEnd": settings.quiet_hours_end,
        },
        "crossPollStatus": status_now,
    }


# -- surfaces


@operation
def notify(
    engine: ApiServices,
    action: Literal["list", "test", "retry", "dismiss"] = "list",
    surface: Literal["phone", "watch", "glasses", "discord", "web", "desktop", ""] = "",
) -> Document:
    """List surfaces and what was not delivered; test, retry or dismiss, for one surface or all (SPEC 10.2)."""
    chosen_surface = Surface(surface) if surface else None
    if action == "test":
        return {"tested": engine.notify.send_test(chosen_surface)}
    reply: Document = {}
    if action == "retry":
        reply["retried"] = engine.notify.retry(chosen_surface)
    if action == "dismiss":
        reply["dismissed"] = engine.notify.outbox.dismiss(chosen_surface)
    until = instant(engine.autonomy.find_dnd_end())
    return reply | {
        "surfaces": engine.notify.describe_surfaces(),
        "quiet": bool(engine.autonomy.find_quiet_reason()),
        "dndUntil": until,
    }


# -- the installation


@quiet_operation
def doctor(engine: ApiServices | OfflineServices, workspaces: Sequence[str] = (), online: bool = False) -> Document:
    """Check the installation: what is configured, found and missing, and how to fix it."""
    from engine.api.doctor import examine  # not before the first check of the installation

    return examine(engine.home, workspaces or list(engine.workspaces), online=online)


@quiet_operation
def key(
    engine: ApiServices | OfflineServices, action: Literal["list", "delete", "test"] = "list", name: Text = ""
) -> Document:
    """List, delete or test keys. `engine.api.model_checks.store_key` stores one, outside of the engine."""
    from engine.api import model_checks  # not before the first check of a key or a model

    match action:
        case "list":
            return model_checks.list_keys(engine.home)
        case "delete":
            return model_checks.delete_key(engine.home, require_argument("name", name))
        case "test":
            return model_checks.check_key(engine.home, require_argument("name", name))
