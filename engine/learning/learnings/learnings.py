"""The service `engine.learnings`: entries, their provenance, and the operator's decisions on them (SPEC 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypeVar
from xml.sax.saxutils import escape

from engine import tokenizer
from engine.clock import Clock
from engine.config import SettingsSource
from engine.events import LearningKept
from engine.files import read_plain
from engine.learning.learnings.chain import FOLLOWED_KINDS, Chain
from engine.learning.learnings.entries import GLOBAL, Scope, format_time, project_key, scope_of_path
from engine.learning.learnings.page import Value
from engine.learning.learnings.promotion import Provenance, is_promotable, plan_retraction
from engine.learning.learnings.recurrence import EmbedTexts, StoredVectors, names
from engine.learning.learnings.rules import SessionSource
from engine.learning.learnings.store import (
    Change,
    LearningFiles,
    LearningTexts,
    mark_retracted,
    prompts_with,
    record_uses,
    retracted_lessons,
)
from engine.model import (
    Asks,
    ChainReport,
    Contribution,
    LearningEntry,
    LearningKind,
    LearningScope,
    LearningView,
    NobodyAsks,
    PromptLine,
    PromptPart,
    PromptRequest,
    PromptSource,
    Refusal,
    RetractReport,
    ScopeState,
    SessionView,
    SourceKind,
    Trust,
    Waiting,
    prompt_words,
    sanitise,
)
from engine.model.learnings import normalise
from engine.model.prompts import OWN_TEXT
from engine.model.text import LEARNT, approved_text, read_section, without_invalid_xml
from engine.storage.database import Database, Transaction
from engine.storage.ledger import ConsumerThread, Ledger, LedgerConsumer

# -- the part of a prompt

BLOCK = "learnt"
PROVENANCE = "learning_sources"

INTRODUCTION = "Came up again and again in earlier sessions. The task and the project's own guidance come first."
_HEAD = (PromptLine(f"<{BLOCK}>", OWN_TEXT), PromptLine(INTRODUCTION, OWN_TEXT))
_END = PromptLine(f"</{BLOCK}>", OWN_TEXT)
MAX_PAGE_BYTES = 1_000_000
MAX_MISSES = 10
"""After so many that have no room no smaller one is looked for."""


class LearningsPart:
    """The part "learnings" of every prompt (SPEC 6, 9.6), within a token budget of its own. Thread-safe.

    Promoted learnings are few and hold for any task, so they do not compete with recall. Over budget, those that name
    the task's files or words come first, then the most certain and important. Only text that the operator wrote or
    approved, or that the engine measured, is included (SPEC 6.8), escaped. What the marked section of `AGENTS.md` says
    is not repeated.
    """

    name = "learnings"

    def __init__(
        self,
        files: LearningFiles,
        settings: SettingsSource,
        *,
        count: Callable[[str], int] = tokenizer.count,
        nearer_lessons: Callable[[PromptRequest], frozenset[str]] = lambda request: frozenset(),
    ) -> None:
        """`nearer_lessons`: lessons that blocks nearer to the agent say; they are not said again."""
        self._nearer_lessons = nearer_lessons
        self._files = files
        self._settings = settings
        self._count = count

    def part(self, request: PromptRequest) -> Contribution:
        """The block for a request, None in it when there is nothing to say. Its provenance names what is said; the
        notes say what had no room."""
        entries = self._entries(request)
        chosen = self._fit(entries)
        cut = len(entries) - len(chosen)
        notes = (f"learnings: {cut} of {len(entries)} had no room",) if cut else ()
        if not chosen:
            return Contribution(None, notes=notes)
        lines = (*_HEAD, *(line for entry in chosen for line in entry_lines(entry)), _END)
        return Contribution(PromptPart(BLOCK, lines), {PROVENANCE: [entry.id for entry in chosen]}, notes)

    def lessons(self, request: PromptRequest) -> frozenset[str]:
        """What this part and those nearer to the agent say."""
        said = self._fit(self._entries(request))
        return self._nearer_lessons(request).union(entry.lesson for entry in said)

    def _entries(self, request: PromptRequest) -> list[LearningEntry]:
        """What holds here and no nearer block says, in order."""
        if not self._settings.current.memory.learnings_tokens:
            return []
        nearer = self._nearer_lessons(request)
        valid = [entry for entry in self._valid_entries(request.workspace) if entry.lesson not in nearer]
        return in_order(valid, request.task)

    def _valid_entries(self, workspace: str) -> list[LearningEntry]:
        """The learnings for a workspace: of its project, and of all."""
        own = self._files.entries(Scope(project_key(workspace)), below=False) if workspace else []
        entries = [
            item for item in (*own, *self._files.entries(GLOBAL, below=False)) if is_promotable(item) and item.may_guide
        ]
        written = _agents_md_text(workspace) if entries else ""
        by_lesson: dict[str, LearningEntry] = {}
        for entry in entries:
            if not written or normalise(entry.text) not in written:
                by_lesson.setdefault(entry.lesson, entry)
        return list(by_lesson.values())

    def _fit(self, entries: Sequence[LearningEntry]) -> list[LearningEntry]:
        """Those that have room."""
        budget = self._settings.current.memory.learnings_tokens
        room = budget - sum(self._count(line.text) for line in (*_HEAD, _END))
        chosen, misses = [], 0
        for entry in entries:
            tokens = sum(self._count(line.text) for line in entry_lines(entry))
            if tokens <= room:
                chosen.append(entry)
                room -= tokens
            else:
                misses += 1
                if misses == MAX_MISSES:  # to try hundreds of them takes longer than it is worth
                    break
        return chosen


def in_order(entries: Sequence[LearningEntry], task: str) -> list[LearningEntry]:
    """What concerns the task first, then what is surest and weighs most. Pure."""
    task_words, task_names = prompt_words(task), names(task)

    def rank(entry: LearningEntry) -> tuple[float, float, str]:
        words = prompt_words(entry.text)
        near = len(task_words & words) / len(words) if words else 0.0
        fits = (1.0 if task_names & names(entry.text) else 0.0) + near
        return -round(fits, 2), -(entry.confidence * entry.importance), entry.id

    return sorted(entries, key=rank)


def entry_lines(entry: LearningEntry) -> list[PromptLine]:
    """An entry as lines of a prompt, each with the entry as its source."""
    label = "learnt everywhere" if entry.scope is LearningScope.GLOBAL else "learnt here"
    approved = entry.trust is Trust.QUOTED
    source = PromptSource(SourceKind.LEARNING, entry.id, label, entry.trust, approved)
    text = approved_text(without_invalid_xml(entry.text).strip(), is_quote=approved)
    return [
        PromptLine(("- " if number == 0 else "  ") + escape(line), source)
        for number, line in enumerate(text.split("\n"))
    ]


def _agents_md_text(workspace: str) -> str:
    """The words in the marked section of the workspace's `AGENTS.md`, "" without one."""
    if not workspace:
        return ""
    try:
        return normalise(read_section(read_plain(Path(workspace) / "AGENTS.md", MAX_PAGE_BYTES), LEARNT))
    except (OSError, ValueError):
        return ""  # not there, or no page: then nothing of it is in the prompt either


# -- the service

Named = TypeVar("Named", bound=StrEnum)


class Learnings:
    """What sessions learnt. All methods may be called from any thread; they read files: not for a screen's own."""

    def __init__(
        self,
        data: Path,
        database: Database,
        clock: Clock,
        *,
        facts: Ledger,
        sessions: SessionSource,
        make: EmbedTexts = lambda texts: None,
        model_name: Callable[[], str] = lambda: "",
        model: Asks | None = None,
    ) -> None:
        """`data` is the home's data folder, `facts` the ledger, `make` makes vectors by the model `model_name`, and
        `model` answers questions where the operator named one."""
        self._database = database
        self._clock = clock
        self._sessions = sessions
        self.files = LearningFiles(data, database)
        meaning = StoredVectors(database, make, model_name)
        self._chain = Chain(
            self.files, database, clock, sessions=sessions, vectors=meaning.vectors, model=model or NobodyAsks()
        )
        follower = LedgerConsumer("chain", facts, FOLLOWED_KINDS, self._chain.handle, key="learnings.follow")
        self._reviews: tuple[int, list[LearningEntry]] = (-1, [])
        following = ConsumerThread([follower], sessions.report, service="learnings", then=self._chain.settle)
        self._poke = following.poke
        self.texts = LearningTexts(self.files, meaning.forget, self._chain.plan_lock)
        """The entries as forgetting knows them (SPEC 4.10)."""
        self.recover = self.files.recover
        """Finish what a crash left half written; in words what cannot be."""
        self.start, self.close, self.catch_up = following.start, following.close, following.catch_up
        """Take in what happened from now on; stop; take in everything that happened now, in this thread."""
        self.faults = self.files.errors
        """Pages and entries that make no sense, each with file and line."""

    # -- life

    def housekeeping(self) -> None:
        """Called every half minute: what failed is tried again, and what others wrote into the files is looked for."""
        self._reviews = (-1, [])
        self._poke()

    def session_changed(self, tx: Transaction, view: SessionView) -> None:
        """Observer of sessions that start or end."""
        tx.after_commit(self._poke)

    def prompt_sent(
        self, tx: Transaction, provenance: Mapping[str, object], *, call: str, session_id: str, agent: str
    ) -> None:
        """A call of a model was made with a prompt of this provenance."""
        sources = provenance.get("learning_sources")
        if isinstance(sources, list | tuple) and sources:
            record_uses(tx, map(str, sources), call=call, session_id=session_id, agent=agent)

    # -- looking

    def scopes(self) -> list[ScopeState]:
        """Every scope that has pages: global, then projects, each before its sessions, each before its teams."""
        entries: dict[Scope, list[LearningEntry]] = {}
        errors: dict[Scope, list[str]] = {}
        for read in self.files.pages():
            scope = scope_of_path(read.path)
            entries.setdefault(scope, []).extend(read.entries)
            errors.setdefault(scope, []).extend(read.errors)
        order = sorted(entries, key=lambda scope: (bool(scope.project), scope.project, scope.session, scope.team))
        return [_state(scope, entries[scope], errors[scope]) for scope in order]

    def entries(
        self,
        scope: str = "",
        workspace: str = "",
        session: str = "",
        kind: str = "",
        words: str = "",
        limit: int = 200,
    ) -> list[LearningEntry]:
        """The newest entries first, of any status: of one `scope` ("team", "session", "project", "global"), of what was
        learnt in a workspace, in a session, of one `kind` ("institutional", "task", "proxy"), with all `words`.

        Raises `Refusal` `bad_scope` for a scope or a kind that there is not.
        """
        level, sort = _named(LearningScope, scope, "scope"), _named(LearningKind, kind, "kind")
        terms = words.casefold().split()
        within = Scope(project_key(workspace), session) if workspace else None
        matching = [
            entry
            for entry in self.files.entries(within)
            if (level is None or entry.scope is level)
            and (sort is None or entry.kind is sort)
            and (not session or entry.session_id == session)
            and all(word in f"{entry.title}\n{entry.text}".casefold() for word in terms)
        ]
        return sorted(matching, key=_newest)[:limit]

    def view(self, id: str) -> LearningView:
        """An entry, by its id, the beginning of it or its lesson, with its provenance both ways. Raises `Refusal`
        `unknown_learning`, `ambiguous_id`."""
        provenance = Provenance.of(self.files.entries())
        entry = _find(provenance, id)
        sources, missing = provenance.sources(entry)
        reached, prompts = prompts_with(self._database, entry.id)
        return LearningView(
            entry,
            promoted_from=tuple(sources),
            promoted_to=tuple(provenance.descendants(entry.id)),
            reached=reached,
            prompts=prompts,
            sessions=provenance.sessions(entry),
            gone=tuple(missing),
        )

    def waiting(self) -> list[Waiting]:
        """The questions to the operator: quotes that recur, and entries whose source was retracted."""
        changes, entries = self._reviews
        if changes != self.files.changes:
            changes = self.files.changes
            entries = [entry for entry in self.files.entries() if entry.review and entry.active]
            self._reviews = changes, entries
        now = self._clock.now()
        return [
            Waiting(
                "learning",
                entry.id,
                f"{_asks(entry)} {entry.title} ({entry.review})",
                entry.review_since or now,
                text=entry.text,
            )
            for entry in entries
        ]

    # -- the operator's word

    def retract(self, id: str, reason: str = "") -> RetractReport:
        """An entry holds no longer, and its lesson is in no prompt any more, whoever said it: leaders, souls and
        learned guidance lose it, and what was promoted from it waits for the operator's word.

        Raises `Refusal`: `unknown_learning`, `ambiguous_id`, `already_retracted`, and as `LearningFiles.apply`.
        """
        with self._chain.plan_lock:
            provenance = Provenance.of(self.files.entries())
            entry = _find(provenance, id)
            if not entry.active:
                raise Refusal("already_retracted", f"{entry.id} is {entry.status.value}: {entry.retired_because}")
            changes, event, report = plan_retraction(entry, provenance, sanitise(reason), self._clock.now())
            self.files.apply(changes, [event])
        mark_retracted(self._database, entry.lesson, is_valid=False)
        self._sessions.retract(entry.lesson, event.reason)
        return report

    def retracted(self) -> frozenset[str]:
        """The lessons that were taken back."""
        return retracted_lessons(self._database)

    def keep(self, id: str) -> LearningEntry:
        """An entry that waits for review holds; a quote may guide from now on, approved by the operator. Raises
        `Refusal`: `unknown_learning`, `ambiguous_id`, `not_waiting`."""
        with self._chain.plan_lock:
            entry = self._entry(id)
            if not entry.review or not entry.active:
                raise Refusal("not_waiting", f"{entry.id} is not waiting for review")
            fields: dict[str, Value] = {"review": "", "review_since": ""}
            if entry.trust is Trust.QUOTED:
                fields |= {"approved_by": "operator", "approved_at": format_time(self._clock.now())}
            event = LearningKept(subject=entry.id, workspace=entry.workspace)
            self.files.apply([Change(entry.path, entry.id, fields)], [event])
            mark_retracted(self._database, entry.lesson, is_valid=True)
            approved = self._entry(entry.id)
            self._chain.offer_up(approved)
            return approved

    def promote(self, id: str) -> LearningEntry:
        """A project's entry holds in all of them, at the operator's word (SPEC 6.4): the global entry that it became,
        or that it reinforced.

        Raises `Refusal`: `unknown_learning`, `ambiguous_id`, `not_promotable`, `already_promoted`.
        """
        risen = self._chain.promote(self._entry(id))
        return self._entry(risen)

    def _entry(self, id: str) -> LearningEntry:
        return _find(Provenance.of(self.files.entries()), id)

    def chain(self, *, judge: bool = False) -> ChainReport:
        """Run the chain now: take in what sessions taught, then the gates from sessions to their projects; with
        `judge` also from projects to all, which the operator's model decides (SPEC 6.4). Takes seconds, with
        `judge` as long as the model does."""
        return self._chain.run(self.catch_up, judge=judge)


def _asks(entry: LearningEntry) -> str:
    return "is it still valid?" if entry.may_guide else "use it as guidance?"


def _find(provenance: Provenance, id: str) -> LearningEntry:
    name = id.strip()
    if name in provenance.entries:
        return provenance.entries[name]
    if with_lesson := [entry for entry in provenance.entries.values() if entry.lesson == name]:
        return max(with_lesson, key=lambda entry: (entry.active, list(LearningScope).index(entry.scope), entry.id))
    matching = [id for id in provenance.entries if name and id.startswith((name, f"lrn_{name}"))]
    if len(matching) == 1:
        return provenance.entries[matching[0]]
    shown = sanitise(name)[:60]
    if matching:
        raise Refusal("ambiguous_id", f"{len(matching)} learnings begin with {shown}", "give more of the id")
    raise Refusal("unknown_learning", f"there is no learning {shown}", "see `clawpy learnings list`")


def _state(scope: Scope, entries: Sequence[LearningEntry], errors: Sequence[str]) -> ScopeState:
    active = [entry for entry in entries if entry.active]
    dated = [entry.created_at for entry in entries if entry.created_at is not None]

    def number(kind: LearningKind) -> int:
        return sum(entry.kind is kind for entry in active)

    return ScopeState(
        scope=scope.level,
        scope_id=scope.id,
        workspace=next((entry.workspace for entry in entries if entry.workspace), "") if scope.project else "",
        path=scope.folder,
        institutional=number(LearningKind.INSTITUTIONAL),
        tasks=number(LearningKind.TASK),
        proxy=number(LearningKind.PROXY),
        retired=len(entries) - len(active),
        newest=max(dated, default=None),
        faults=tuple(errors),
    )


def _newest(entry: LearningEntry) -> tuple[float, str]:
    return (-entry.created_at.timestamp() if entry.created_at else 0.0, entry.id)


def _named(kind: type[Named], name: str, what: str) -> Named | None:
    if not name:
        return None
    try:
        return kind(name)
    except ValueError:
        names = ", ".join(member.value for member in kind)
        raise Refusal("bad_scope", f"there is no {what} {sanitise(name)[:40]!r}", f"one of {names}") from None
