"""What is remembered, asked for and found again (SPEC 4): values that the layers of memory and the screens share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from engine.frozen import frozen
from engine.model.agents import PromptPart
from engine.model.layers import Layer
from engine.model.trust import Trust


class Retention(StrEnum):
    """How long a memory of layer C or E is kept (SPEC 4.3)."""

    SESSION = "session"  # until its session is over, and a day more
    MONTH = "month"  # 30 days after it was remembered
    FOREVER = "forever"


RETENTION_BY_KIND: Mapping[str, Retention] = {
    "turn": Retention.MONTH,
    "note": Retention.SESSION,
    "decision": Retention.FOREVER,
    "fact": Retention.FOREVER,
    "correction": Retention.FOREVER,
    "summary": Retention.FOREVER,
}
"""The tier of each kind, unless whoever remembers it says otherwise."""


@frozen
class Thread:
    """A conversation of the operator with another agent about a workspace. `about` are the operator's words, `question`
    is what the agent asked last, "" for nothing; `unanswered` if the operator spoke last; `at` is the last turn."""

    session: str
    agent: str
    workspace: str
    about: str
    question: str
    unanswered: bool
    at: datetime


@frozen
class NewMemory:
    """Something to remember. `layer` is C or E; `at` when it was said (None: now); `ref` the caller's own id of it.

    `retention` None is the kind's own tier.
    """

    text: str
    layer: Layer = Layer.VECTORS
    kind: str = "turn"
    speaker: str = ""
    at: datetime | None = None
    session: str = ""
    agent: str = ""
    workspace: str = ""
    source: str = ""
    tags: tuple[str, ...] = ()
    retention: Retention | None = None
    ref: str = ""
    trust: Trust = Trust.QUOTED


@frozen
class Memory:
    """A row of layer C or E.

    `id` is the program's own (`mem_...`); `ref` the id under which a caller gave it, "" if there is none: verbs answer
    with `ref or id`. `seq` grows with the order in which things were remembered, also within a session. A forgotten
    one has no text; one that is `superseded_by` another is history.
    """

    id: str
    layer: Layer
    text: str
    kind: str
    at: datetime
    retention: Retention
    created_at: datetime
    speaker: str = ""
    session: str = ""
    agent: str = ""
    workspace: str = ""
    source: str = ""
    tags: tuple[str, ...] = ()
    superseded_by: str = ""
    forgotten: bool = False
    ref: str = ""
    seq: int = 0
    trust: Trust = Trust.QUOTED


@frozen
class RecallQuery:
    """A question to all layers. None leaves a limit away; `session` is the one that asks, of which nothing is found;
    `now` drives decay (None: the engine's clock). With `passages`, of a long memory the text is the passage that
    answers."""

    text: str
    k: int = 10
    workspace: str | None = None
    agent: str | None = None
    session: str | None = None
    now: datetime | None = None
    layers: frozenset[Layer] | None = None
    passages: bool = False


@frozen
class ScorePart:
    """One reason for a rank: `value` in [0, 1], times `weight`."""

    name: str
    value: float
    weight: float


def weighted_sum(parts: Iterable[ScorePart]) -> float:
    """The score that parts make."""
    return sum(part.value * part.weight for part in parts)


@frozen
class RecallMatch:
    """One line that was found, with where it came from and why (SPEC 4.4). `ref` as in `Memory`; `about` is the session
    or task whose course it tells, "" where it stands for itself; `place` where in a long memory the text stands, "" for
    the whole of it."""

    id: str
    layer: Layer
    text: str
    score: float
    parts: tuple[ScorePart, ...]
    reason: str
    source: str
    speaker: str = ""
    at: datetime | None = None
    tokens: int = 0
    ref: str = ""
    trust: Trust = Trust.QUOTED
    approved: bool = False
    about: str = ""
    place: str = ""


@frozen
class Recall:
    """The memories that were found."""

    items: tuple[RecallMatch, ...]
    """Best first."""
    left_out: tuple[str, ...] = ()
    """Layers that failed or were late, in words."""
    seconds: float = 0.0


@frozen
class RememberResult:
    """The result of remembering texts."""

    ids: tuple[str, ...]
    """In the order of the texts."""
    new: int
    """Number of new ones."""


@frozen
class AgentFile:
    """A file of layer A as it was read (SPEC 4.1)."""

    agent: str
    name: str
    text: str
    digest: str
    """Of its bytes, "" if there is no such file."""
    written: datetime | None = None
    problem: str = ""
    """In words, "" for none."""


@frozen
class Injection:
    """The memories that recall would put into a prompt (SPEC 9.5)."""

    part: PromptPart | None
    """The block as it is sent, None if nothing is recalled."""
    items: tuple[RecallMatch, ...]
    """The memories in the block, best first."""
    dropped: tuple[RecallMatch, ...] = ()
    """Memories beyond the `budget`, best first."""
    left_out: tuple[str, ...] = ()
    """Layers that failed or were late, in words."""
    tokens: int = 0
    """Length of the block."""
    budget: int = 0
    seconds: float = 0.0
