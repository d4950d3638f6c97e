"""Operations that hold back work and let it go on: stop, resume, dnd (SPEC 3.7, 7.3)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from engine.api.documents import Document, document, instant
from engine.api.operations.operation import Seconds, Text, operation
from engine.api.operations.status import status
from engine.model import Hold, Refusal

if TYPE_CHECKING:
    from engine.api.services import ApiServices


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
    # `killed` and `left` are for `calling.stop`, which ends processes that this engine does not.
    return {"holds": holds, "stopped": running, "reached": True, "killed": 0, "left": []}


@operation(marks_presence=True)
def resume(engine: ApiServices, word: Text = "") -> Document:
    """End a hold, by default the only one. `lifted` has it, `holds` those that remain."""
    before = engine.safety.holds()
    word = word or _only_hold(engine, before)
    engine.safety.resume(word)
    return status(engine) | {"lifted": document([hold for hold in before if hold.word == word])}


def _only_hold(engine: ApiServices, holds: Sequence[Hold]) -> str:
    """The word of the only active hold. Raises `Refusal`: `which_hold` for several, `not_held` for none."""
    words = [hold.word for hold in holds]
    if len(words) > 1:
        raise Refusal("which_hold", f"{' and '.join(words)} are active", f"name one: clawpy resume {words[0]}")
    if words:
        return words[0]
    thrown = next((level for level in engine.safety.levels() if level.thrown), None)
    if thrown is None:
        raise Refusal("not_held", "nothing is stopped or paused", "see `clawpy status`")
    # A level of the kill switch that is no hold is ended in another way.
    raise Refusal("not_held", f"nothing is stopped or paused, but {thrown.name}: {thrown.words}", thrown.lift)


@operation(marks_presence=True)
def dnd(engine: ApiServices, seconds: Seconds = 7200, off: bool = False) -> Document:
    """Do not disturb for `seconds`, 2 hours by default, or `off`: cards are made, nothing runs by itself."""
    until = engine.autonomy.dnd(None if off else timedelta(seconds=seconds))
    return {"dndUntil": instant(until), "quiet": engine.autonomy.quiet()}
