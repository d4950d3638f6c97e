"""The service `engine.learnings`: entries, their provenance, and the operator's decisions on them (SPEC 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from engine.clock import Clock
from engine.events import LearningKept
from engine.learning.learnings.chain import FOLLOWED_KINDS, Chain
from engine.learning.learnings.findings import SessionSource
from engine.learning.learnings.page import Value, format_time
from engine.learning.learnings.promotion import (
    Provenance,
    mark_retracted,
    plan_retraction,
    plan_revival,
    read_retracted_lessons,
)
from engine.learning.learnings.prompt_part import load_prompts_with
from engine.learning.learnings.recurrence import EmbedTexts, StoredVectors
from engine.learning.learnings.store import Change, LearningFiles, Scope, make_project_key, parse_scope_path
from engine.model import (
    Asks,
    ChainReport,
    LearningEntry,
    LearningKind,
    LearningScope,
    LearningStatus,
    LearningView,
    Refusal,
    RetractReport,
    ScopeState,
    SessionView,
    Trust,
    Waiting,
    sanitise,
)
from engine.storage.database import Database, Transaction
from engine.storage.erasing import SearchTerms
from engine.storage.ledger import ConsumerThread, Ledger, LedgerConsumer

Parsed = TypeVar("Parsed", bound=StrEnum)


class Learnings:
    """Reads learnings, and carries out decisions on them. Callable from any thread, except the thread of the screens,
    because methods read files."""

    def __init__(
        self,
        data: Path,
        database: Database,
        clock: Clock,
        *,
        ledger: Ledger,
        sessions: SessionSource,
        embed: EmbedTexts = lambda texts: None,
        model_name: Callable[[], str] = lambda: "",
        model: Asks,
    ) -> None:
        """`data` is the home's data folder. `embed` computes embeddings with the model `model_name()`. `model` is the
        model that the operator chose for questions."""
        self._database = database
        self._clock = clock
        self._sessions = sessions
        self.files = LearningFiles(data, database)
        vectors = StoredVectors(database, embed, model_name)
        self._chain = Chain(self.files, database, clock, sessions=sessions, vectors=vectors.load, model=model)
        consumer = LedgerConsumer("chain", ledger, FOLLOWED_KINDS, self._chain.handle, key="learnings.follow")
        thread = ConsumerThread([consumer], sessions.report, service="learnings", on_caught_up=self._chain.check_gates)
        self._poke = thread.poke
        self._under_review: tuple[int, list[LearningEntry]] = (-1, [])
        """(number of changes of the files, entries that need a review after these changes)."""
        self.texts = LearningTexts(self.files, vectors.forget, self._chain.plan_lock)
        """The entries for forgetting (SPEC 4.10)."""
        self.recover = self.files.recover
        """Finish the changes that a crash interrupted; returns the problems of those that still fail, in words."""
        self.start, self.close, self.catch_up = thread.start, thread.close, thread.catch_up
        """`start` follows the ledger in a thread, and `close` stops that. `catch_up` handles all new ledger entries
        now, in the calling thread."""

    def housekeeping(self) -> None:
        """Retry failed work, and read files again that other programs changed. Called every half minute."""
        self._under_review = (-1, [])
        self._poke()

    def session_changed(self, tx: Transaction, view: SessionView) -> None:
        """Observer of sessions that start or end."""
        tx.after_commit(self._poke)

    def scopes(self) -> list[ScopeState]:
        """Every scope that has pages: first global, then each project, followed by its sessions, each followed by its
        teams."""
        entries: dict[Scope, list[LearningEntry]] = {}
        errors: dict[Scope, list[str]] = {}
        for page in self.files.pages():
            scope = parse_scope_path(page.path)
            entries.setdefault(scope, []).extend(page.entries)
            errors.setdefault(scope, []).extend(page.errors)
        order = sorted(entries, key=lambda scope: (bool(scope.project), scope.project, scope.session, scope.team))
        return [_describe_state(scope, entries[scope], errors[scope]) for scope in order]

    def entries(
        self,
        scope: str = "",
        workspace: str = "",
        session: str = "",
        kind: str = "",
        words: str = "",
        limit: int = 200,
    ) -> list[LearningEntry]:
        """The entries of any status, newest first. They can be limited to a `scope` ("team", "session", "project",
        "global"), workspace, session or `kind` ("institutional", "task", "proxy"), and to those with all `words`.

        An entry that was promoted is listed only in its highest scope, unless it does not match there.

        Raises `Refusal` `bad_scope` for a scope or a kind that does not exist.
        """
        only_scope, only_kind = _parse(LearningScope, scope, "scope"), _parse(LearningKind, kind, "kind")
        terms = words.casefold().split()
        within = Scope(make_project_key(workspace), session) if workspace else None
        matching = [
            entry
            for entry in self.files.entries(within)
            if only_scope in (None, entry.scope)
            and only_kind in (None, entry.kind)
            and (not session or entry.session_id == session)
            and all(word in f"{entry.title}\n{entry.text}".casefold() for word in terms)
        ]
        promoted = {source.entry for entry in matching if entry.active for source in entry.promoted_from}
        return sorted((entry for entry in matching if entry.id not in promoted), key=_make_newest_first_key)[:limit]

    def view(self, id: str) -> LearningView:
        """An entry with its provenance in both directions. `id` is its id, the beginning of it, or its lesson. Raises
        `Refusal` `unknown_learning`, `ambiguous_id`."""
        provenance = Provenance.trace(self.files.entries())
        entry = _find_entry(provenance, id)
        sources, missing = provenance.sources(entry)
        reached, prompts = load_prompts_with(self._database, entry.id)
        return LearningView(
            entry,
            promoted_from=tuple(sources),
            promoted_to=tuple(provenance.descendants(entry)),
            reached=reached,
            prompts=prompts,
            sessions=provenance.sessions(entry),
            gone=tuple(missing),
        )

    def waiting(self) -> list[Waiting]:
        """The entries that need the operator's review: quotes that recur, and entries whose source was retracted."""
        changes, entries = self._under_review
        if changes != self.files.changes:
            changes = self.files.changes
            entries = [entry for entry in self.files.entries() if entry.review and entry.active]
            self._under_review = changes, entries
        now = self._clock.now()
        return [
            Waiting("learning", entry.id, _review_question(entry), entry.review_since or now, text=entry.text)
            for entry in entries
        ]

    def retract(self, id: str, reason: str = "") -> RetractReport:
        """Retire an entry, and remove its lesson from all prompts, guidance and candidates. The entries that were
        promoted from it wait for the operator's review.

        Raises `Refusal`: `unknown_learning`, `ambiguous_id`, `already_retracted`, and as `LearningFiles.apply`.
        """
        with self._chain.plan_lock:
            provenance = Provenance.trace(self.files.entries())
            entry = _find_entry(provenance, id)
            if not entry.active:
                raise Refusal("already_retracted", f"{entry.id} is not valid: {entry.retired_because or 'merged'}")
            changes, event, report = plan_retraction(entry, provenance, sanitise(reason), self._clock.now())
            self.files.apply(changes, [event])
        mark_retracted(self._database, entry.lesson, is_valid=False)
        self._sessions.retract(entry.lesson, event.reason)
        return report

    def retracted(self) -> frozenset[str]:
        """The ids of the lessons that were retracted."""
        return read_retracted_lessons(self._database)

    def keep(self, id: str) -> LearningEntry:
        """Make an entry valid that is under review, or that was retracted; a quote is approved to be guidance. What its
        retraction ended or queued is as before. Raises `Refusal`: `unknown_learning`, `ambiguous_id`, `not_waiting`."""
        with self._chain.plan_lock:
            provenance = Provenance.trace(self.files.entries())
            entry = _find_entry(provenance, id)
            if not entry.can_be_kept:
                raise Refusal("not_waiting", f"{entry.id} is neither waiting for review nor retracted")
            active = LearningStatus.ACTIVE.value
            fields: dict[str, Value] = {"status": active, "retired_because": "", "review": "", "review_since": ""}
            if entry.trust is Trust.QUOTED:
                fields |= {"approved_by": "operator", "approved_at": format_time(self._clock.now())}
            event = LearningKept(subject=entry.id, workspace=entry.workspace)
            self.files.apply([Change(entry.path, entry.id, fields), *plan_revival(entry, provenance)], [event])
            mark_retracted(self._database, entry.lesson, is_valid=True)
            approved = self._get_entry(entry.id)
            self._chain.offer_to_leaders(approved)
            return approved

    def promote(self, id: str) -> LearningEntry:
        """Promote an entry of a project to all projects (SPEC 6.4); returns the global entry that it became, or that it
        reinforced.

        Raises `Refusal`: `unknown_learning`, `ambiguous_id`, `not_promotable`, `already_promoted`.
        """
        return self._get_entry(self._chain.promote(self._get_entry(id)))

    def _get_entry(self, id: str) -> LearningEntry:
        """The entry with this id or the beginning of it. Raises `Refusal` `unknown_learning`, `ambiguous_id`."""
        return _find_entry(Provenance.trace(self.files.entries()), id)

    def chain(self, *, judge: bool = False) -> ChainReport:
        """Run the chain now: extract the learnings of sessions, and promote them from sessions to projects. With
        `judge`, the operator's model also decides which are promoted to all projects (SPEC 6.4). Takes seconds, and
        with `judge` the time of the model."""
        return self._chain.run(self.catch_up, judge=judge)


class LearningTexts:
    """Finds and erases words in entries of all scopes (SPEC 4.10); see `engine.memory.forget.ErasableStore`. It leaves
    an empty entry, so that provenance stays complete."""

    name = "learnings"

    def __init__(
        self,
        files: LearningFiles,
        forget_vectors: Callable[[Iterable[str]], None],
        plan_lock: AbstractContextManager[object],
    ) -> None:
        """`plan_lock` is held while entries are erased, so that no plan is made of them."""
        self._files = files
        self._forget_vectors = forget_vectors
        self._plan_lock = plan_lock

    def find(self, query: SearchTerms, /) -> Iterator[tuple[str, str]]:
        """(id, text) of each entry that matches."""
        for entry in self._files.entries():
            if any(map(query.match, _collect_texts(entry))):
                yield entry.id, entry.text or entry.title

    def erase(self, query: SearchTerms, /) -> int:
        """Remove the texts of the entries that match; returns their number."""
        with self._plan_lock, self._files.lock:
            self._files.finish_pending()  # pending changes may contain the words
            self._files.erasures += 1
            matching = [entry for entry in self._files.entries() if any(map(query.match, _collect_texts(entry)))]
            self._forget_vectors([entry.text for entry in matching])
            self._files.apply([_make_erasing_change(entry) for entry in matching])
            return len(matching)

    def text_of(self, id: str) -> str | None:
        """The text of an entry, None for an unknown id."""
        entry = next((entry for entry in self._files.entries() if entry.id == id), None)
        return None if entry is None else entry.text or None


def _make_erasing_change(entry: LearningEntry) -> Change:
    """The change that retires an entry and empties all its texts."""
    cleared = {"title": "", "about": "", "session_task": "", "reasons": [], "review": "", "review_since": ""}
    ended = {"status": LearningStatus.RETIRED.value, "retired_because": "forgotten"}
    return Change(entry.path, entry.id, {**cleared, **ended}, text="")


def _collect_texts(entry: LearningEntry) -> list[str]:
    """All texts of an entry that people or models wrote."""
    return [
        entry.text,
        entry.title,
        entry.about,
        entry.session_task,
        entry.retired_because,
        entry.review,
        *entry.reasons,
    ]


def _review_question(entry: LearningEntry) -> str:
    """The question to the operator about an entry, with the reason."""
    question = "is it still valid?" if entry.may_guide else "use it as guidance?"
    return f"{question} {entry.title} ({entry.review})"


def _find_entry(provenance: Provenance, id: str) -> LearningEntry:
    """The entry with this id or a prefix of it. For the id of a lesson, its active entry in the highest scope."""
    prefix = id.strip()
    if prefix in provenance.entries:
        return provenance.entries[prefix]
    if with_lesson := [entry for entry in provenance.entries.values() if entry.lesson == prefix]:
        return max(with_lesson, key=lambda entry: (entry.active, list(LearningScope).index(entry.scope), entry.id))
    matching = [id for id in provenance.entries if prefix and id.startswith((prefix, f"lrn_{prefix}"))]
    if len(matching) == 1:
        return provenance.entries[matching[0]]
    shown = sanitise(prefix)[:60]
    if matching:
        raise Refusal("ambiguous_id", f"{len(matching)} learnings begin with {shown}", "give more of the id")
    raise Refusal("unknown_learning", f"there is no learning {shown}", "see `clawpy learnings list`")


def _describe_state(scope: Scope, entries: Sequence[LearningEntry], errors: Sequence[str]) -> ScopeState:
    """The state of a scope with these entries, and with these errors of its pages."""
    active = [entry for entry in entries if entry.active]
    count_by_kind = Counter(entry.kind for entry in active)
    dates = [entry.created_at for entry in entries if entry.created_at is not None]
    return ScopeState(
        scope=scope.level,
        scope_id=scope.id,
        workspace=next((entry.workspace for entry in entries if entry.workspace), "") if scope.project else "",
        path=scope.folder,
        institutional=count_by_kind[LearningKind.INSTITUTIONAL],
        tasks=count_by_kind[LearningKind.TASK],
        proxy=count_by_kind[LearningKind.PROXY],
        retired=len(entries) - len(active),
        newest=max(dates, default=None),
        faults=tuple(errors),
    )


def _make_newest_first_key(entry: LearningEntry) -> tuple[float, str]:
    """The sort key that puts the newest entry first, and entries without a date last."""
    return (-entry.created_at.timestamp() if entry.created_at else 0.0, entry.id)


def _parse(type: type[Parsed], value: str, noun: str) -> Parsed | None:
    """The member of an enumeration with this value, None for ""."""
    try:
        return type(value) if value else None
    except ValueError:
        raise Refusal(
            "bad_scope", f"there is no {noun} {sanitise(value)[:40]!r}", f"one of {', '.join(type)}"
        ) from None
