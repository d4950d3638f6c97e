"""Layer G, PARA (SPEC 4.7): canonical facts in projects, areas, resources and archives.

Files are the truth (`para_file`). A fact is never deleted: another supersedes it, and the chain of corrections can be
walked both ways. A change that touches more than one file is an intent row first, with the facts as they shall be:
applied twice it is as applied once.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from engine.clock import Clock
from engine.frozen import frozen
from engine.memory.capture_rules import digest
from engine.memory.para_file import FACT, GROUP, ITEMS, MAX_FACT, Group, read_group, write_group
from engine.model import Bucket, ParaFact, Refusal, Trust, sanitise
from engine.storage import intents
from engine.storage.database import Database
from engine.storage.erasing import SearchTerms

log = logging.getLogger(__name__)

INTENT = "para"
_COPIED_FIELDS = ("fact", "category", "bucket", "group", "source", "workspace", "trust", "approved_at")
"""What a new fact and a kept one have in common."""


@frozen
class NewFact:
    """A fact to keep. `supersedes`: the id of the one that it takes the place of, "" for none. `trust` and
    `approved_at` as in `ParaFact`; `reason`: why it might be kept, of one that waits for the operator's word."""

    fact: str
    category: str = "fact"
    bucket: Bucket = Bucket.AREAS
    group: str = "general"
    source: str = "operator"
    workspace: str = ""
    supersedes: str = ""
    trust: Trust = Trust.QUOTED
    approved_at: datetime | None = None
    reason: str = ""

    @property
    def digest(self) -> str:
        """The same for what says the same."""
        return digest(self.fact)


class Para:
    """The facts of one home. All methods may be called from any thread."""

    name = "facts"

    def __init__(self, folder: Path, database: Database, clock: Clock) -> None:
        self._folder = folder
        self._database = database
        self._clock = clock
        self._lock = threading.RLock()
        self._cache: dict[Path, tuple[tuple[int, int, int], Group]] = {}
        self._accesses: dict[str, tuple[int, datetime]] = {}

    # -- reading

    def facts(self, *, words: str = "", active: bool = False, workspace: str | None = None) -> list[ParaFact]:
        """Every fact that makes sense, the newest first; those with all `words`. A fact without a workspace belongs to
        every one."""
        terms = words.casefold().split()
        matching = [
            fact
            for fact in self._all_facts().values()
            if (fact.active or not active)
            and (workspace is None or fact.workspace in ("", workspace))
            and all(word in fact.fact.casefold() for word in terms)
        ]
        return sorted(matching, key=lambda fact: (fact.created_at, fact.id), reverse=True)

    def get(self, fact_id: str) -> ParaFact:
        """One fact. Raises `Refusal` `unknown_fact`."""
        fact = self._all_facts().get(fact_id)
        if fact is None:
            raise Refusal("unknown_fact", f"there is no fact {sanitise(fact_id)}", "see layer G of the memory")
        return fact

    def corrections(self, fact_id: str) -> list[ParaFact]:
        """The chain of corrections that a fact belongs to: what it took the place of, itself, what took its place.

        Oldest first; where two were superseded by one, both. Raises `Refusal` `unknown_fact`.
        """
        start = self.get(fact_id)
        all_facts = self._all_facts()
        chain = {start.id: start}
        frontier = [start]
        while frontier:
            ids = {fact.id for fact in frontier}
            predecessors = [fact for fact in all_facts.values() if fact.superseded_by in ids and fact.id not in chain]
            frontier = sorted(predecessors, key=lambda fact: (fact.created_at, fact.id), reverse=True)
            chain |= {item.id: item for item in frontier}
        earlier = list(chain.values())[::-1]
        successor = all_facts.get(start.superseded_by or "")
        while successor is not None and successor.id not in chain:
            chain[successor.id] = successor
            successor = all_facts.get(successor.superseded_by or "")
        return [*earlier, *list(chain.values())[len(earlier) :]]

    def problems(self) -> list[str]:
        """What in the files makes no sense, in words; nothing of it is lost."""
        problems = []
        all_facts = self._all_facts()
        for group in self._groups():
            problems += [group.broken] if group.broken else []
            problems += group.faults
            problems += [
                f"{group.place}: {fact.id} is superseded by {fact.superseded_by}, which is missing"
                for fact in group.facts.values()
                if fact.superseded_by and fact.superseded_by not in all_facts
            ]
        return problems

    # -- writing

    def add(self, new: Sequence[NewFact]) -> list[ParaFact]:
        """Keep facts; those that an active fact of the group says already are not kept again (that one comes back).

        Raises `Refusal`: `bad_fact`, `unknown_fact`, `already_superseded`, `para_damaged`; then none of them is kept.
        """
        with self._lock:
            changes: dict[str, ParaFact] = {}
            stored = [self._plan_fact(_validated(item), changes) for item in new]
            self._write_changes(list(changes.values()))
            return stored

    def count_access(self, fact_ids: Iterable[str]) -> None:
        """Recall found these facts: counted in memory, written by `flush`."""
        now = self._clock.now()
        with self._lock:
            for fact_id in fact_ids:
                self._accesses[fact_id] = (self._accesses.get(fact_id, (0, now))[0] + 1, now)

    def flush(self) -> None:
        """Write the counts of `count_access` into the files. What cannot be written is kept for another time."""
        with self._lock:
            if not self._accesses:
                return
            accesses, self._accesses = self._accesses, {}
            for group in self._groups():
                changed = [
                    replace(
                        fact, access_count=fact.access_count + accesses[fact.id][0], last_accessed=accesses[fact.id][1]
                    )
                    for fact in group.facts.values()
                    if fact.id in accesses and not fact.forgotten
                ]
                if changed:
                    try:
                        write_group(group, changed)
                    except (OSError, Refusal):
                        log.warning("counts of %s could not be written", group.place, exc_info=True)
                        self._accesses |= {fact.id: accesses[fact.id] for fact in changed}

    def find(self, terms: SearchTerms) -> Iterator[tuple[str, str]]:
        """Facts whose words are `terms`, for forgetting."""
        yield from ((fact.id, fact.fact) for fact in self._matching(terms))

    def erase(self, terms: SearchTerms) -> int:
        """Empty them; how many. The stubs keep their places in the chain (SPEC 4.10)."""
        with self._lock:
            stubs = [
                replace(fact, fact="", category="", source="", status="superseded", forgotten=True)
                for fact in self._matching(terms)
            ]
            self._write_changes(stubs)
            return len(stubs)

    def _matching(self, terms: SearchTerms) -> list[ParaFact]:
        return [fact for fact in self.facts() if any(map(terms.match, (fact.fact, fact.category, fact.source)))]

    def recover(self) -> list[str]:
        """Finish what a crash left half done. Says in words what cannot be."""
        problems = []
        for intent in intents.unfinished(self._database, INTENT):
            facts = [FACT.validate_python(item) for item in intent.payload["facts"]]
            try:
                self._write_files(facts)
            except (OSError, Refusal) as error:
                problems.append(f"facts of {intent.begun_at:%Y-%m-%d} are waiting to be written: {error}")
                continue
            intents.drop(self._database, intent.id)
        return problems

    # -- inside

    def _plan_fact(self, new: NewFact, changes: dict[str, ParaFact]) -> ParaFact:
        new_digest = new.digest
        all_facts = self._all_facts() | changes
        for fact in all_facts.values():
            is_in_group = (fact.bucket, fact.group) == (new.bucket, new.group)
            if fact.active and is_in_group and digest(fact.fact) == new_digest:
                if new.approved_at is not None and fact.approved_at is None and new.fact == fact.fact:
                    fact = changes[fact.id] = replace(fact, approved_at=new.approved_at)
                return fact
        fact = ParaFact(
            id=_free_id(new, all_facts.keys()),
            status="active",
            created_at=self._clock.now(),
            **{name: getattr(new, name) for name in _COPIED_FIELDS},
        )
        if new.supersedes:
            old = all_facts.get(new.supersedes)
            if old is None:
                raise Refusal("unknown_fact", f"there is no fact {sanitise(new.supersedes)}", "see layer G")
            if not old.active:
                raise Refusal(
                    "already_superseded",
                    f"{old.id} was superseded by {old.superseded_by or 'nothing'}",
                    f"supersede {old.superseded_by}" if old.superseded_by else "add the fact separately",
                )
            changes[old.id] = replace(old, status="superseded", superseded_by=fact.id)
        changes[fact.id] = fact
        return fact

    def _write_changes(self, facts: Sequence[ParaFact]) -> None:
        """Write changed facts, whichever files they are in, all or, after a crash, all at the next start."""
        if not facts:
            return
        for folder in {self._folder_of(fact) for fact in facts}:
            self._group(folder).refuse_broken()
        payload = {"facts": [FACT.dump_python(fact, mode="json") for fact in facts]}
        intent = self._database.write(lambda tx: intents.begin(tx, INTENT, facts[0].id, payload))
        try:
            self._write_files(facts)
        except OSError as error:
            raise Refusal(
                "unwritable_home",
                f"{self._folder} cannot be written: {error.strerror or error}",
                "free some space or make the folder writable; the rest is written at the next start",
            ) from error
        intents.drop(self._database, intent)

    def _write_files(self, facts: Sequence[ParaFact]) -> None:
        by_folder: dict[Path, list[ParaFact]] = {}
        for fact in facts:
            by_folder.setdefault(self._folder_of(fact), []).append(fact)
        with self._lock:
            for folder, changed in by_folder.items():
                write_group(self._group(folder), changed)

    def _all_facts(self) -> dict[str, ParaFact]:
        return {fact.id: fact for group in self._groups() for fact in group.facts.values()}

    def _groups(self) -> list[Group]:
        folders = [path for bucket in Bucket for path in sorted((self._folder / bucket).glob("*"))]
        return [self._group(path) for path in folders if path.is_dir() and GROUP.fullmatch(path.name)]

    def _group(self, folder: Path) -> Group:
        """A group, read again when its file has changed."""
        try:
            status = (folder / ITEMS).stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            return read_group(folder)
        with self._lock:
            cached = self._cache.get(folder)
            if cached is None or cached[0] != stamp:
                cached = self._cache[folder] = (stamp, read_group(folder))
            return cached[1]

    def _folder_of(self, fact: ParaFact) -> Path:
        return self._folder / fact.bucket / fact.group


def group_name(text: str) -> str:
    """A name of a group made of any words: small letters, digits, `-`; "general" for none that can be."""
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text.lower())
    return "-".join(part for part in name.split("-") if part)[:60].strip("-") or "general"


def _validated(new: NewFact) -> NewFact:
    text = " ".join(sanitise(new.fact).split())
    if not text or len(text) > MAX_FACT:
        raise Refusal("bad_fact", f"a fact must have 1 to {MAX_FACT} characters", "write it in one sentence")
    if not GROUP.fullmatch(new.group):
        raise Refusal(
            "bad_fact", f"{sanitise(new.group)!r} is not a valid group name", "use lower-case letters, digits, - and _"
        )
    return replace(new, fact=text, category=sanitise(new.category).strip(), source=sanitise(new.source).strip())


def _free_id(new: NewFact, existing_ids: Iterable[str]) -> str:
    """An id that follows from what the fact says, so that the same run twice makes the same; another where that is
    taken by an older fact of the same words."""
    taken_ids = set(existing_ids)
    basis = f"{new.bucket}/{new.group}/{new.digest}"
    candidates = ("fact_" + hashlib.sha256(f"{basis}/{salt}".encode()).hexdigest()[:8] for salt in itertools.count())
    return next(name for name in candidates if name not in taken_ids)
