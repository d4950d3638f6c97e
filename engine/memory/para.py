"""Layer G, PARA (SPEC 4.7): canonical facts in projects, areas, resources and archives.

Files are the truth: `para/BUCKET/GROUP/items.json`, and the `summary.md` made of it. A fact is never deleted: another
one supersedes it, and the chain of corrections can be followed in both directions. A change may concern several files,
so it begins with an intent row, which contains the facts as they will be. It can be applied twice without harm.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from engine.clock import Clock
from engine.files import FileCache, encode_json, write_atomic
from engine.frozen import frozen
from engine.memory.capture_rules import digest_sentence
from engine.model import Bucket, ParaFact, Refusal, Trust
from engine.storage.database import Database
from engine.storage.erasing import SearchTerms
from engine.storage.state import begin_intent, finish_intent_now, read_unfinished_intents
from engine.text import hex_hash, one_line, sanitise
from engine.wording import describe_validation_faults

ITEMS_FILE = "items.json"
"""The facts of a group, in its folder."""

SUMMARY_FILE = "summary.md"
"""The page that is made of them."""

GROUP_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")
"""The form of a group's name."""

MAX_FACT_CHARS = 1_000
"""Maximum number of characters of a fact."""

INTENT_KIND = "para"
"""The kind of the intents of this service."""

_FACTS = TypeAdapter(list[ParaFact])


@frozen
class NewFact:
    """A fact to keep. Fields without a docstring are as in `ParaFact`."""

    fact: str
    category: str = "fact"
    bucket: Bucket = Bucket.AREAS
    group: str = "general"
    source: str = "operator"
    workspace: str = ""
    supersedes: str = ""
    """The id of the fact that it replaces, "" for none."""
    trust: Trust = Trust.QUOTED
    approved_at: datetime | None = None
    reason: str = ""
    """Why a draft should be kept."""

    @property
    def digest(self) -> str:
        """The same for facts that say the same; see `capture_rules.digest_sentence`."""
        return digest_sentence(self.fact)


@frozen
class _Group:
    """The facts in a folder, by id. `broken` says why its file cannot be used, "" if it can. Such a file is never
    overwritten."""

    folder: Path
    facts: Mapping[str, ParaFact] = field(default_factory=dict)
    broken: str = ""


@frozen
class FactReading:
    """The facts that were asked for, newest first, and in words the files that could not be read."""

    facts: list[ParaFact]
    problems: list[str]


class Para:
    """The facts of one home. All methods may be called from any thread."""

    name = "facts"

    def __init__(self, folder: Path, database: Database, clock: Clock) -> None:
        self._folder = folder
        self._database = database
        self._clock = clock
        self._lock = threading.RLock()
        self._cache: FileCache[_Group] = FileCache()
        self._access_counts: Counter[str] = Counter()
        self._accessed_at: dict[str, datetime] = {}
        """By fact: how often recall found it since the last `flush`, and when last."""

    # -- reading

    def read(self, *, words: str = "", active: bool = False, workspace: str | None = None) -> FactReading:
        """Read the facts with all `words`. A fact without a workspace belongs to every workspace."""
        groups, terms = self._list_groups(), words.casefold().split()
        matching = [
            fact
            for fact in _index_facts(groups).values()
            if (fact.is_active or not active)
            and (workspace is None or fact.workspace in ("", workspace))
            and all(word in fact.fact.casefold() for word in terms)
        ]
        newest_first = sorted(matching, key=lambda fact: (fact.created_at, fact.id), reverse=True)
        return FactReading(newest_first, [group.broken for group in groups if group.broken])

    def read_facts(self, *, words: str = "", active: bool = False) -> list[ParaFact]:
        """Facts with all `words`, newest first."""
        return self.read(words=words, active=active).facts

    def get(self, fact_id: str) -> ParaFact:
        """One fact. Raises `Refusal` `unknown_fact`."""
        return _require_fact(self._read_all_facts(), fact_id)

    def read_corrections(self, fact_id: str) -> list[ParaFact]:
        """The chain of corrections that a fact belongs to, oldest first, up to the fact that is valid now. Raises
        `Refusal` `unknown_fact`."""
        facts = self._read_all_facts()

        def follow_successors(fact: ParaFact) -> list[str]:
            chain = [fact.id]
            while (successor := facts[chain[-1]].superseded_by) in facts and successor not in chain:
                chain.append(successor)
            return chain

        chains = {fact.id: follow_successors(fact) for fact in facts.values()}
        last = chains[_require_fact(facts, fact_id).id][-1]
        members = [fact for fact in facts.values() if chains[fact.id][-1] == last]
        return sorted(members, key=lambda fact: (-len(chains[fact.id]), fact.created_at, fact.id))

    # -- writing

    def add(self, new: Sequence[NewFact]) -> list[ParaFact]:
        """Keep facts, and return them. If an active fact of the group says the same, it takes the place of the new one.

        Raises `Refusal`: `bad_fact`, `unknown_fact`, `already_superseded`, `para_damaged`; then none of them is kept.
        After `unwritable_home` the next start writes all of them.
        """
        with self._lock:
            changes: dict[str, ParaFact] = {}
            stored = [self._plan_addition(_validate_fact(item), changes) for item in new]
            self._commit(list(changes.values()))
            return stored

    def count_access(self, fact_ids: Iterable[str]) -> None:
        """Count that recall found these facts. `flush` writes the counts."""
        ids, now = list(fact_ids), self._clock.now()
        with self._lock:
            self._access_counts.update(ids)
            self._accessed_at |= dict.fromkeys(ids, now)

    def flush(self) -> None:
        """Write the counts of `count_access` into the files. Raises OSError; then a later call writes them."""
        with self._lock:
            facts = self._read_all_facts()
            changed = [
                replace(facts[id], access_count=facts[id].access_count + number, last_accessed=self._accessed_at[id])
                for id, number in self._access_counts.items()
                if id in facts and not facts[id].forgotten
            ]
            self._write_files(changed)
            self._access_counts.clear()
            self._accessed_at.clear()

    def find(self, terms: SearchTerms) -> Iterator[tuple[str, str]]:
        """Facts that contain `terms`, for forgetting."""
        yield from ((fact.id, fact.fact) for fact in self._select_matching(terms))

    def erase(self, terms: SearchTerms) -> int:
        """Empty the facts that contain the terms; returns how many. The stubs keep their places in the chain (SPEC
        4.10)."""
        with self._lock:
            stubs = [
                replace(fact, fact="", category="", source="", status="superseded", forgotten=True)
                for fact in self._select_matching(terms)
            ]
            self._commit(stubs)
            return len(stubs)

    def recover(self) -> list[str]:
        """Finish what a crash left half done. Returns what could not be finished, in words."""
        problems = []
        for intent in read_unfinished_intents(self._database, INTENT_KIND):
            try:
                self._write_files(_FACTS.validate_python(intent.payload["facts"]))
            except (OSError, Refusal, ValidationError) as error:
                date = f"{intent.begun_at:%Y-%m-%d}"
                problems.append(f"facts of {date} are waiting to be written: {_describe_fault(error)}")
            else:
                finish_intent_now(self._database, intent.id)
        return problems

    # -- inside

    def _select_matching(self, terms: SearchTerms) -> list[ParaFact]:
        return [fact for fact in self.read_facts() if any(map(terms.match, (fact.fact, fact.category, fact.source)))]

    def _plan_addition(self, new: NewFact, changes: dict[str, ParaFact]) -> ParaFact:
        """Put the fact that `new` becomes, and other facts that change with it, into `changes`."""
        facts = self._read_all_facts() | changes
        fact = _find_same(facts.values(), new)
        if fact is None:
            fact = self._make_fact(new, _make_free_id(new, facts))
            changes[fact.id] = fact
        elif new.approved_at is not None and fact.approved_at is None and new.fact == fact.fact:
            fact = replace(fact, approved_at=new.approved_at)
            changes[fact.id] = fact
        if new.supersedes and new.supersedes != fact.id:
            old = _require_fact(facts, new.supersedes)
            if old.superseded_by != fact.id:
                _require_active(old)
                changes[old.id] = replace(old, status="superseded", superseded_by=fact.id)
        return fact

    def _make_fact(self, new: NewFact, fact_id: str) -> ParaFact:
        return ParaFact(
            id=fact_id,
            fact=new.fact,
            category=new.category,
            source=new.source,
            status="active",
            bucket=new.bucket,
            group=new.group,
            created_at=self._clock.now(),
            workspace=new.workspace,
            trust=new.trust,
            approved_at=new.approved_at,
        )

    def _commit(self, facts: Sequence[ParaFact]) -> None:
        """Write changed facts into their files. After a crash the next start writes all of them."""
        for folder in {self._locate_folder(fact) for fact in facts}:
            _refuse_broken(self._load_group(folder))
        payload = {"facts": _FACTS.dump_python(list(facts), mode="json")}
        intent = self._database.write(lambda tx: begin_intent(tx, INTENT_KIND, "", payload))
        try:
            self._write_files(facts)
        except OSError as error:
            raise Refusal(
                "unwritable_home",
                f"{self._folder} cannot be written: {error.strerror or error}",
                "free some space or make the folder writable; the rest is written at the next start",
            ) from error
        finish_intent_now(self._database, intent)

    def _write_files(self, changed: Sequence[ParaFact]) -> None:
        """Write changed facts into the files of their groups. Raises OSError, and `Refusal` `para_damaged`."""
        with self._lock:
            for folder in {self._locate_folder(fact): None for fact in changed}:
                group = self._load_group(folder)
                _refuse_broken(group)
                facts = {**group.facts, **{fact.id: fact for fact in changed if self._locate_folder(fact) == folder}}
                folder.mkdir(parents=True, exist_ok=True)
                items = _FACTS.dump_python(list(facts.values()), mode="json", exclude={"__all__": {"bucket", "group"}})
                _write_if_changed(folder / ITEMS_FILE, encode_json(items))
                _write_if_changed(
                    folder / SUMMARY_FILE, render_summary(folder, facts.values()).encode(errors="replace")
                )

    def _read_all_facts(self) -> dict[str, ParaFact]:
        return _index_facts(self._list_groups())

    def _list_groups(self) -> list[_Group]:
        return [self._load_group(path) for path in _list_group_folders(self._folder)]

    def _load_group(self, folder: Path) -> _Group:
        return self._cache.get(folder, (folder / ITEMS_FILE,), lambda: _read_group(folder))

    def _locate_folder(self, fact: ParaFact) -> Path:
        return self._folder / fact.bucket / fact.group


# -- the files of a group


def make_group_name(text: str) -> str:
    """The name of a group, made of any words: small letters, digits, `-`; "general" if nothing is left of them."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return "-".join(words)[:60].strip("-") or "general"


def find_broken_files(folder: Path) -> list[str]:
    """The files of facts below `folder` that cannot be read, in words."""
    return [group.broken for path in _list_group_folders(folder) if (group := _read_group(path)).broken]


def _list_group_folders(folder: Path) -> list[Path]:
    folders = (path for bucket in Bucket for path in sorted((folder / bucket).glob("*")))
    return [path for path in folders if path.is_dir() and GROUP_NAME.fullmatch(path.name)]


def _read_group(folder: Path) -> _Group:
    """The group in `folder`, empty if there is none."""
    bucket, group = folder.parts[-2:]
    try:
        items = json.loads((folder / ITEMS_FILE).read_text(encoding="utf-8-sig"))
        facts = _FACTS.validate_python([item | {"bucket": bucket, "group": group} for item in items])
    except FileNotFoundError:
        return _Group(folder)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        problem = f"para/{bucket}/{group}/{ITEMS_FILE} cannot be read: {_describe_fault(error)}"
        return _Group(folder, broken=sanitise(problem))
    return _Group(folder, {fact.id: fact for fact in facts})


def _describe_fault(error: Exception) -> str:
    return describe_validation_faults(error)[0] if isinstance(error, ValidationError) else str(error)


def _index_facts(groups: Iterable[_Group]) -> dict[str, ParaFact]:
    return {fact.id: fact for group in groups for fact in group.facts.values()}


def _refuse_broken(group: _Group) -> None:
    if group.broken:
        raise Refusal("para_damaged", group.broken, "fix the file, or move it away to start afresh")


def _require_fact(facts: Mapping[str, ParaFact], fact_id: str) -> ParaFact:
    if fact_id not in facts:
        raise Refusal("unknown_fact", f"there is no fact {sanitise(fact_id)}", "see layer G of the memory")
    return facts[fact_id]


def _require_active(fact: ParaFact) -> None:
    if fact.is_active:
        return
    successor = fact.superseded_by
    raise Refusal(
        "already_superseded",
        f"{fact.id} was superseded by {successor or 'nothing'}",
        f"supersede {successor}" if successor else "add the fact separately",
    )


def _find_same(facts: Iterable[ParaFact], new: NewFact) -> ParaFact | None:
    """The active fact of the group of `new` that says the same in its workspace or in all, None for none."""
    group, new_digest = (new.bucket, new.group), new.digest
    in_group = (fact for fact in facts if fact.is_active and (fact.bucket, fact.group) == group)
    in_workspace = (fact for fact in in_group if fact.workspace in ("", new.workspace))
    return next((fact for fact in in_workspace if digest_sentence(fact.fact) == new_digest), None)


def _validate_fact(new: NewFact) -> NewFact:
    """A new fact with its texts cleaned. Raises `Refusal` `bad_fact`."""
    text = one_line(new.fact)
    if not text or len(text) > MAX_FACT_CHARS:
        raise Refusal("bad_fact", f"a fact must have 1 to {MAX_FACT_CHARS} characters", "write it in one sentence")
    if not GROUP_NAME.fullmatch(new.group):
        raise Refusal(
            "bad_fact", f"{sanitise(new.group)!r} is not a valid group name", "use lower-case letters, digits, - and _"
        )
    return replace(new, fact=text, category=sanitise(new.category).strip(), source=sanitise(new.source).strip())


def _make_free_id(new: NewFact, existing_ids: Iterable[str]) -> str:
    """An id that is made of the fact's words, so that a repeated run makes the same id. If an older fact with the same
    words has it, it is another one."""
    taken_ids = set(existing_ids)
    basis = f"{new.bucket}/{new.group}/{new.digest}"
    candidates = ("fact_" + hex_hash(f"{basis}/{salt}", 8) for salt in itertools.count())
    return next(name for name in candidates if name not in taken_ids)


def render_summary(folder: Path, facts: Iterable[ParaFact]) -> str:
    """The Markdown page of a group: valid facts by category, then superseded ones with their successors. Pure."""
    by_category: dict[str, list[str]] = {}
    history = []
    for fact in facts:
        if fact.is_active:
            by_category.setdefault(one_line(fact.category) or "fact", []).append(f"- {one_line(fact.fact)} ({fact.id})")
        elif not fact.forgotten:
            successor = f", superseded by {fact.superseded_by}" if fact.superseded_by else ""
            history.append(f"- {one_line(fact.fact)} ({fact.id}{successor})")
    page = [f"# {folder.parent.name.capitalize()}: {folder.name}", "", f"Made from {ITEMS_FILE}; edit that one.", ""]
    for category, lines in sorted(by_category.items()):
        page += [f"## {category}", "", *lines, ""]
    if history:
        page += ["## Superseded", "", *history, ""]
    return "\n".join(page)


def _write_if_changed(path: Path, data: bytes) -> None:
    if not path.is_file() or path.read_bytes() != data:
        write_atomic(path, data)
