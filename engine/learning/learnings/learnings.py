"""The service `engine.learnings`: entries, their provenance, and the operator's decisions on them (SPEC 6).

It reads the pages of the `store`. A decision (`retract`, `keep`, `promote`) becomes a plan of `promotion`, which the
store carries out. What follows from sessions is done by the `chain`, in a thread that follows the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from engine.clock import Clock
from engine.events.learning import LearningKept
from engine.frozen import group_pairs
from engine.learning.learnings import SessionSource
from engine.learning.learnings.chain import FOLLOWED_KINDS, Chain
from engine.learning.learnings.page import Page, make_change
from engine.learning.learnings.promotion import VALID_FIELDS, Provenance, plan_reinstatement, plan_retraction
from engine.learning.learnings.prompt_part import load_prompts_with
from engine.learning.learnings.recurrence import StoredVectors
from engine.learning.learnings.store import LearningStore, Scope, make_project_key
from engine.model import (
    ChainReport,
    LearningEntry,
    LearningKind,
    LearningScope,
    LearningStatus,
    LearningView,
    ModelAsker,
    Refusal,
    RetractReport,
    ScopeState,
    SessionView,
    Trust,
    Waiting,
)
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.erasing import SearchTerms
from engine.storage.ledger import ConsumerThread, Ledger, LedgerConsumer
from engine.text import sanitise

RETRACTED_KEY = "learnings.retracted"
"""Key in the state table: the ids of the lessons that the operator retracted."""

ERASED_FIELDS = {
    **VALID_FIELDS, "status": LearningStatus.RETIRED, "retired_because": "forgotten", "title": "", "about": "",
    "session_task": "", "reasons": (), "text": "",
}  # fmt: skip
"""The fields of an entry whose words were forgotten."""


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
        vectors: StoredVectors,
        model: ModelAsker,
    ) -> None:
        """`data` is the home's data folder. `model` is the model that the operator chose for questions."""
        self._database = database
        self._clock = clock
        self._sessions = sessions
        self.files = LearningStore(data, database)
        self._chain = Chain(
            self.files,
            database,
            clock,
            sessions=sessions,
            vectors=vectors.load,
            model=model,
            retracted=self.read_retracted,
        )
        consumer = LedgerConsumer("chain", ledger, FOLLOWED_KINDS, self._chain.handle, key="learnings.follow")
        self._follower = ConsumerThread(
            [consumer], sessions.report, service="learnings", on_caught_up=self._chain.check_gates
        )
        self._under_review: tuple[int, list[LearningEntry]] = (-1, [])
        """(number of changes of the files, entries that need a review after these changes)."""
        self.texts = LearningTexts(self.files, vectors)
        """The entries for forgetting (SPEC 4.10)."""

    def start(self) -> None:
        """Follow the ledger in a thread."""
        self._follower.start()

    def close(self) -> None:
        """Stop the thread that follows the ledger."""
        self._follower.close()

    def catch_up(self, until: float | None = None) -> None:
        """Handle the new ledger entries in the calling thread. No entry is begun after `until`, a monotonic time; the
        next call handles the rest."""
        self._follower.catch_up(until)

    def recover(self) -> list[str]:
        """Finish the changes that a crash interrupted. Returns the problem if some still cannot be made, in words."""
        try:
            self.files.finish_pending()
        except Refusal as refusal:
            return [f"learnings are waiting to be written: {refusal}"]
        return []

    def housekeeping(self) -> None:
        """Retry failed work, and read files again that other programs changed. Called every half minute."""
        self._under_review = (-1, [])
        self._follower.poke()

    def session_changed(self, tx: Transaction, view: SessionView) -> None:
        """Observer of sessions that start or end."""
        tx.after_commit(self._follower.poke)

    def list_scopes(self) -> list[ScopeState]:
        """Every scope that has pages: first global, then each project, followed by its sessions, each followed by its
        teams."""
        pages = group_pairs(self.files.iterate_pages())
        order = sorted(pages, key=lambda scope: (scope.project, scope.session, scope.team))
        return [_describe_state(scope, pages[scope]) for scope in order]

    def list_entries(
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
        _require_known_name(scope, LearningScope, "scope")
        _require_known_name(kind, LearningKind, "kind")
        terms = words.casefold().split()
        within = Scope(make_project_key(workspace), session) if workspace else None
        matching = [
            entry
            for entry in self.files.read_entries(within)
            if scope in ("", entry.scope)
            and kind in ("", entry.kind)
            and (not session or entry.session_id == session)
            and all(word in f"{entry.title}\n{entry.text}".casefold() for word in terms)
        ]
        promoted = {source.entry for entry in matching if entry.is_active for source in entry.promoted_from}
        listed = [entry for entry in matching if entry.id not in promoted]
        return sorted(listed, key=lambda entry: (-entry.created_at.timestamp() if entry.created_at else 0, entry.id))[
            :limit
        ]

    def view(self, entry_id: str) -> LearningView:
        """An entry with its provenance in both directions. `entry_id` is its id, the beginning of it, or its lesson.
        Raises `Refusal` `unknown_learning`, `ambiguous_id`."""
        entry, provenance = self._find(entry_id)
        sources = provenance.find_sources(entry.id)
        reached, prompts = load_prompts_with(self._database, entry.id)
        return LearningView(
            entry,
            promoted_from=provenance.find(sources),
            promoted_to=provenance.find(provenance.find_descendants(entry.id)),
            reached=reached,
            prompts=prompts,
            sessions=provenance.find_sessions(entry.id),
            gone=tuple(entry_id for entry_id in sources if entry_id not in provenance.entries),
        )

    def waiting(self) -> list[Waiting]:
        """The entries that need the operator's review: quotes that recur, and entries whose source was retracted."""
        changes, entries = self._under_review
        if changes != self.files.change_count:
            changes = self.files.change_count
            entries = [entry for entry in self.files.read_entries() if entry.review and entry.is_active]
            self._under_review = changes, entries
        now = self._clock.now()
        return [
            Waiting("learning", entry.id, _make_review_question(entry), entry.review_since or now, text=entry.text)
            for entry in entries
        ]

    def retract(self, entry_id: str, reason: str = "") -> RetractReport:
        """Retire an entry, and remove its lesson from all prompts, guidance and candidates. The entries that were
        promoted from it wait for the operator's review.

        Raises `Refusal`: `unknown_learning`, `ambiguous_id`, `already_retracted`, and as `LearningStore.apply`.
        """
        with self.files.lock:
            entry, provenance = self._find(entry_id)
            if not entry.is_active:
                raise Refusal("already_retracted", f"{entry.id} is not valid: {entry.retired_because or 'merged'}")
            plan, report = plan_retraction(entry, provenance, sanitise(reason), self._clock.now())
            self.files.apply(plan)
            self._mark_lesson(entry.lesson, is_retracted=True)
        self._sessions.retract(entry.lesson, plan[0].entry.retired_because)
        return report

    def read_retracted(self) -> frozenset[str]:
        """The ids of the lessons that were retracted."""
        with self._database.read() as session:
            return frozenset(state.get(session, RETRACTED_KEY, ()))

    def _mark_lesson(self, lesson: str, *, is_retracted: bool) -> None:
        """Store whether a lesson is retracted."""
        lessons = self.read_retracted() | {lesson} if is_retracted else self.read_retracted() - {lesson}
        self._database.write(lambda tx: state.put(tx, RETRACTED_KEY, sorted(lessons)))

    def keep(self, entry_id: str) -> LearningEntry:
        """Make an entry valid that is under review, or that was retracted; a quote is approved to be guidance. What its
        retraction ended or queued is as before. Raises `Refusal`: `unknown_learning`, `ambiguous_id`, `not_waiting`."""
        with self.files.lock:
            entry, provenance = self._find(entry_id)
            if not entry.can_be_kept:
                message = f"{entry.id} is neither waiting for review nor retracted"
                raise Refusal("not_waiting", message, "see `clawpy learnings show`")
            approval = {"approved_at": self._clock.now()} if entry.trust is Trust.QUOTED else {}
            plan = plan_reinstatement(entry, provenance, self._clock.now(), **approval)
            event = LearningKept(subject=entry.id, workspace=entry.workspace)
            self.files.apply([replace(plan[0], event=event), *plan[1:]])
            self._mark_lesson(entry.lesson, is_retracted=False)
            self._chain.offer_to_leaders(plan[0].entry)
            return plan[0].entry

    def promote(self, entry_id: str) -> LearningEntry:
        """Promote an entry of a project to all projects (SPEC 6.4); returns the global entry that it became, or that it
        reinforced.

        Raises `Refusal`: `unknown_learning`, `ambiguous_id`, `not_promotable`, `already_promoted`.
        """
        return self._find(self._chain.promote(self._find(entry_id)[0]))[0]

    def _find(self, entry_id: str) -> tuple[LearningEntry, Provenance]:
        """The entry with this id or the beginning of it, or the active one in the highest scope with this lesson; and
        the provenance of all. Raises `Refusal` `unknown_learning`, `ambiguous_id`."""
        provenance, prefix = Provenance(self.files.read_entries()), entry_id.strip()
        entries = provenance.entries.values()
        found = [entry for entry in entries if prefix in (entry.id, entry.lesson)] or [
            entry for entry in entries if prefix and entry.id.startswith((prefix, f"lrn_{prefix}"))
        ]
        shown = sanitise(prefix)[:60]
        if not found:
            raise Refusal("unknown_learning", f"there is no learning {shown}", "see `clawpy learnings list`")
        if len(found) > 1 and found[0].lesson != prefix:
            raise Refusal("ambiguous_id", f"{len(found)} learnings begin with {shown}", "give more of the id")
        ranks = list(LearningScope).index
        return max(found, key=lambda entry: (entry.is_active, ranks(entry.scope), entry.id)), provenance

    def run_chain(self, *, judge: bool = False) -> ChainReport:
        """Run the chain now: extract the learnings of sessions, and promote them from sessions to projects. With
        `judge`, the operator's model also decides which are promoted to all projects (SPEC 6.4). Takes seconds, and
        with `judge` the time of the model."""
        return self._chain.run(self.catch_up, judge=judge)


class LearningTexts:
    """Finds and erases words in entries of all scopes (SPEC 4.10); see `engine.memory.forget.ErasableStore`. It leaves
    an empty entry, so that provenance stays complete."""

    name = "learnings"

    def __init__(self, store: LearningStore, vectors: StoredVectors) -> None:
        self._store = store
        self._vectors = vectors

    def find(self, query: SearchTerms, /) -> Iterator[tuple[str, str]]:
        """(id, text) of each entry that matches."""
        for entry in self._find(query):
            yield entry.id, entry.text or entry.title

    def erase(self, query: SearchTerms, /) -> int:
        """Remove the texts of the entries that match; returns their number."""
        with self._store.lock:  # so that no plan is made of them meanwhile
            self._store.finish_pending()  # pending changes may contain the words
            self._store.erasure_count += 1
            matching = self._find(query)
            self._vectors.forget([entry.text for entry in matching])
            self._store.apply([make_change(entry, **ERASED_FIELDS) for entry in matching])
            return len(matching)

    def find_text(self, entry_id: str) -> str | None:
        """The text of an entry, None for an unknown id."""
        return next((entry.text for entry in self._store.read_entries() if entry.id == entry_id and entry.text), None)

    def _find(self, query: SearchTerms) -> list[LearningEntry]:
        """The entries in which a text that people or models wrote matches."""
        return [entry for entry in self._store.read_entries() if any(map(query.match, _collect_texts(entry)))]


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


def _make_review_question(entry: LearningEntry) -> str:
    """The question to the operator about an entry, with the reason."""
    question = "is it still valid?" if entry.may_guide else "use it as guidance?"
    return f"{question} {entry.title} ({entry.review})"


def _describe_state(scope: Scope, pages: Sequence[Page]) -> ScopeState:
    """The state of a scope with these pages."""
    entries = [entry for page in pages for entry in page.entries]
    count_by_kind = Counter(entry.kind for entry in entries if entry.is_active)
    return ScopeState(
        scope=scope.level,
        scope_id=scope.id,
        workspace=next((entry.workspace for entry in entries if entry.workspace), "") if scope.project else "",
        path=scope.folder,
        institutional=count_by_kind[LearningKind.INSTITUTIONAL],
        tasks=count_by_kind[LearningKind.TASK],
        proxy=count_by_kind[LearningKind.PROXY],
        retired=len(entries) - count_by_kind.total(),
        newest=max((entry.created_at for entry in entries if entry.created_at), default=None),
        faults=tuple(error for page in pages for error in page.errors),
    )


def _require_known_name(name: str, names: type[StrEnum], noun: str) -> None:
    """Raise `Refusal` `bad_scope` for a name that is not empty and not among these."""
    if name and name not in list(names):
        raise Refusal("bad_scope", f"there is no {noun} {sanitise(name)[:40]!r}", f"one of {', '.join(names)}")
