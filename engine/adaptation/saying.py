"""What a prompt fragment says, by the kind of record that it is drawn from (SPEC 5.2). Pure but for `Material`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.adaptation import reading
from engine.adaptation.material import Material, NothingToDraft, ended
from engine.values import Trust
from engine.values.adaptation import LearningRecord, RecordKind
from engine.values.lessons import distil
from engine.values.text import count

QUOTED = 240
"""Characters of what somebody said that a line quotes."""

DISTINCT = 3
"""So many tasks must meet what is said of one thing before it is a lesson (SPEC 6.8)."""

Said = tuple[list[str], str, Trust]
"""The lines, what the candidate is called, and whose words the lines are."""


def _say_approval(record: LearningRecord, known: Sequence[LearningRecord], material: Material) -> Said:
    told = record.details
    if "added" in told:
        rule = distil(told["added"])
        met = sum(one.source_label == record.source_label for one in known)
        if not rule.general and met < DISTINCT:
            raise NothingToDraft(f"an order about one thing is no lesson: {quoted(told['added'], 60)}")
        return [rule.text], f"Tell {record.agent} what the operator keeps adding: {quoted(rule.text)}", Trust.OPERATOR
    if "text" not in told:
        raise NothingToDraft("an approval of what was proposed calls for no change")
    title = f"Say in every prompt what the operator keeps as a fact: {quoted(told['text'], 60)}"
    return [str(told["text"])], title, Trust(told.get("trust", Trust.QUOTED))


def _say_error(record: LearningRecord, known: Sequence[LearningRecord], material: Material) -> Said:
    told = record.details
    tool, message = str(told["tool"]), str(told["message"])
    cause = message.partition(": ")[2] or message
    line = f"A call of {tool} failed: {quoted(cause)}."
    session = ended(record.session_id, material)
    instead = reading.after_error(material.transcript(session), tool, message)
    learnt = list(material.corrections(session))
    if not instead and not learnt:
        raise NothingToDraft(f"nothing is known of what helps against {record.source_label}")
    if instead:
        line += f" What worked then: {', '.join(f'`{flat(one)}`' for one in instead)}."
    return [line, *learnt], f"Warn {record.agent} of an error of {tool}: {quoted(cause, 60)}", Trust.QUOTED


def _say_noisy(record: LearningRecord, known: Sequence[LearningRecord], material: Material) -> Said:
    told = record.details
    if "candidate_id" in told:
        raise NothingToDraft("what was promoted and does harm is rolled back, not talked over")
    text, trust = material.saying(str(told["ref"]))
    if not text:
        raise NothingToDraft(f"{told['ref']} is not said any more")
    line = (
        f"{told['leader']} says {quoted(text)}. Of {told['told']} sessions with it {told['told_bad']} ended badly, "
        f"of {told['untold']} without it {told['untold_bad']}: where it and the task disagree, the task and its tests "
        "count."
    )
    return [line], f"Take the weight from what {told['leader']} says: {quoted(text, 60)}", trust


def _say_stale(record: LearningRecord, known: Sequence[LearningRecord], material: Material) -> Said:
    told = record.details
    text, trust = material.saying(str(told["ref"]))
    if not text:
        raise NothingToDraft(f"{told['ref']} is not said any more")
    why = [f"it is {count(told['days'], 'day')} old, where {told['most']} are the rule"] if told["most"] else []
    why += [f"files that it names are gone: {', '.join(map(str, told['gone'][:5]))}"] if told["gone"] else []
    past = " and ".join(why)
    line = f"{told['leader']} says {quoted(text)}, and {past}: look whether it still holds before you follow it."
    return [line], f"Say that what {told['leader']} says may be out of date: {quoted(text, 60)}", trust


def _say_recalled(record: LearningRecord, known: Sequence[LearningRecord], material: Material) -> Said:
    text, trust = material.memory(str(record.details["memory"]))
    if not text:
        raise NothingToDraft("what was recalled was forgotten since")
    return [text], f"Keep before {record.agent} what it is served again and again: {quoted(text, 60)}", trust


def _say_nothing(record: LearningRecord, known: Sequence[LearningRecord], material: Material) -> Said:
    raise NothingToDraft(f"{record.kind} says that things went their way, which calls for no change")


SAY: Mapping[RecordKind, Callable[[LearningRecord, Sequence[LearningRecord], Material], Said]] = {
    RecordKind.HUMAN_APPROVAL: _say_approval,
    RecordKind.AGENT_ERROR: _say_error,
    RecordKind.GUIDANCE_NOISY: _say_noisy,
    RecordKind.STALE_GUIDANCE: _say_stale,
    RecordKind.CLOUD_MEMORY_RECALL_HIT: _say_recalled,
    RecordKind.GUIDANCE_APPLIED: _say_nothing,
    RecordKind.TEACHING_REFRESH: _say_nothing,
}


def flat(text: Any) -> str:
    """A text in one line."""
    return " ".join(str(text).split())


def quoted(text: Any, most: int = QUOTED) -> str:
    """A text in one line and in quotes, at most so many characters of it."""
    said = flat(text).strip(".")
    return f"“{said if len(said) <= most else said[: most - 1] + '…'}”"
