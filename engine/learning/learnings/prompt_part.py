"""The part "learnings" of every prompt (SPEC 6, 9.6), and the table of the prompts that contained each entry (6.5).

`LearningsPart` chooses the entries of a prompt within its token budget. When the prompt is sent, `record_uses` stores
which they were, so that the view of an entry can name the prompts that it reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from html import escape, unescape
from pathlib import Path
from typing import Any

from sqlmodel import Field

from engine import tokenizer
from engine.config.settings import SettingsSource
from engine.files import LEARNINGS_MARKS, read_plain, read_section
from engine.learning import find_names
from engine.learning.learnings.store import GLOBAL, LearningFiles, Scope, make_project_key
from engine.lessons import find_lessons, make_lesson_id
from engine.model import (
    Contribution,
    LearningEntry,
    LearningReach,
    LearningScope,
    PromptLine,
    PromptRequest,
    PromptSource,
    SourceKind,
    Trust,
)
from engine.model.prompts import OWN_TEXT, make_block
from engine.storage import Row, as_stored, ask, read_all
from engine.storage.database import Database, Transaction
from engine.text import remove_invalid_xml, split_prompt_words
from engine.wording import mark_approved

BLOCK_TAG = "learnt"
"""The tag around the learnings in a prompt."""

PROVENANCE_KEY = "learning_sources"
"""Key of a prompt's provenance that lists its learnings."""

_INTRODUCTION = PromptLine(
    "Came up again and again in earlier sessions. The task and the project's own guidance come first.", OWN_TEXT
)
"""The first line of the block."""

MAX_PAGE_BYTES = 1024 * 1024
"""Maximum size of an `AGENTS.md` that is read."""

MAX_MISSES = 10
"""Number of learnings that do not fit, after which no smaller learning is tried."""

MAX_PROMPTS = 20
"""Maximum number of prompts that are listed for an entry."""


class LearningsPart:
    """The part "learnings" of every prompt (SPEC 6, 9.6), within a token budget of its own. Thread-safe.

    Promoted learnings are few and valid for any task, so they do not compete with recall for room. If they exceed the
    budget, learnings that name the task's files or words come first, then the most certain and important. Only texts
    that the operator wrote or approved, or that the engine measured, are included (SPEC 6.8). They are escaped. Texts
    in the marked section of `AGENTS.md` are not repeated.
    """

    name = "learnings"

    def __init__(
        self,
        files: LearningFiles,
        settings: SettingsSource,
        *,
        nearer_lessons: Callable[[PromptRequest], frozenset[str]] = lambda request: frozenset(),
    ) -> None:
        """`nearer_lessons(request)` returns the lessons in other parts that are nearer to the agent."""
        self._nearer_lessons = nearer_lessons
        self._files = files
        self._settings = settings

    def make_part(self, request: PromptRequest) -> Contribution:
        """The block for a request, None without learnings. Its provenance names them. Its notes say how many did not
        fit."""
        entries, left_out = self._choose_entries(request)
        notes = (f"learnings: {left_out} of {left_out + len(entries)} had no room",) if left_out else ()
        if not entries:
            return Contribution(None, notes=notes)
        part = make_block(BLOCK_TAG, [_INTRODUCTION, *(line for entry in entries for line in make_entry_lines(entry))])
        return Contribution(part, {PROVENANCE_KEY: [entry.id for entry in entries]}, notes)

    def find_lessons(self, request: PromptRequest) -> frozenset[str]:
        """The lessons in this part and in the parts nearer to the agent."""
        return self._nearer_lessons(request).union(entry.lesson for entry in self._choose_entries(request)[0])

    def _choose_entries(self, request: PromptRequest) -> tuple[list[LearningEntry], int]:
        """(the learnings for a request that fit into the token budget, the most fitting first; number of the
        others)."""
        room = self._settings.current.memory.learnings_tokens
        if not room:
            return [], 0
        valid = self._collect_valid_entries(request)
        room -= tokenizer.count_lines(make_block(BLOCK_TAG, [_INTRODUCTION]).lines)
        chosen, misses = list[LearningEntry](), 0
        for entry in order_entries(valid, request.task):
            tokens = tokenizer.count_lines(make_entry_lines(entry))
            if tokens <= room:
                chosen.append(entry)
                room -= tokens
            elif (misses := misses + 1) == MAX_MISSES:
                break
        return chosen, len(valid) - len(chosen)

    def _collect_valid_entries(self, request: PromptRequest) -> list[LearningEntry]:
        """The learnings of the project of a request, and those of all projects; one for each lesson, without those in
        nearer parts and in `AGENTS.md`."""
        workspace, lessons = request.workspace, set(self._nearer_lessons(request))
        scopes = [Scope(make_project_key(workspace)), GLOBAL] if workspace else [GLOBAL]
        agents_md = _read_agents_md_lessons(workspace) if workspace else frozenset()
        valid = []
        for entry in (entry for scope in scopes for entry in self._files.read_entries(scope, below=False)):
            is_repeated = entry.lesson in lessons or make_lesson_id(entry.text) in agents_md
            if entry.is_settled and entry.may_guide and not is_repeated:
                lessons.add(entry.lesson)
                valid.append(entry)
        return valid


def order_entries(entries: Sequence[LearningEntry], task: str) -> list[LearningEntry]:
    """Sort entries: those that name the task's files or words come first, then the most certain and important. Pure."""
    task_words, task_names = split_prompt_words(task), find_names(task)

    def rank(entry: LearningEntry) -> tuple[float, float, str]:
        words = split_prompt_words(entry.text)
        common_words = len(task_words & words) / len(words) if words else 0.0
        names_task = bool(task_names & find_names(entry.text))
        return -round(names_task + common_words, 2), -(entry.confidence * entry.importance), entry.id

    return sorted(entries, key=rank)


def make_entry_lines(entry: LearningEntry) -> list[PromptLine]:
    """An entry as lines of a prompt, each with the entry as its source."""
    label = "learnt everywhere" if entry.scope is LearningScope.GLOBAL else "learnt here"
    approved = entry.trust is Trust.QUOTED
    source = PromptSource(SourceKind.LEARNING, entry.id, label, entry.trust, approved)
    text = mark_approved(remove_invalid_xml(entry.text).strip(), is_quote=approved)
    return [
        PromptLine(("- " if number == 0 else "  ") + escape(line, quote=False), source)
        for number, line in enumerate(text.split("\n"))
    ]


def _read_agents_md_lessons(workspace: str) -> frozenset[str]:
    """The ids of the lessons in the marked section of the workspace's `AGENTS.md`, which has one in each line."""
    try:
        section = read_section(read_plain(Path(workspace) / "AGENTS.md", MAX_PAGE_BYTES), LEARNINGS_MARKS)
    except (OSError, ValueError):  # the agent cannot read it either
        return frozenset()
    return find_lessons(unescape(line).removeprefix("- ").removeprefix("\\") for line in section.split("\n"))


class LearningUse(Row, table=True):
    """A model call whose prompt contained an entry."""

    __tablename__ = "learning_uses"

    call_id: str = Field(primary_key=True)
    entry_id: str = Field(primary_key=True)
    session_id: str
    agent: str
    at: datetime


_INSERT_NEW_USE = (
    "INSERT OR IGNORE INTO learning_uses (call_id, entry_id, session_id, agent, at) VALUES (?, ?, ?, ?, ?)"
)


def record_uses(tx: Transaction, provenance: Mapping[str, Any], *, call: str, session_id: str, agent: str) -> None:
    """Store which entries were in the prompt of a model call, by the provenance of the prompt."""
    rows = [(call, entry_id, session_id, agent, as_stored(tx.now)) for entry_id in provenance.get(PROVENANCE_KEY, ())]
    tx.driver.executemany(_INSERT_NEW_USE, rows)


def load_prompts_with(database: Database, entry_id: str) -> tuple[tuple[LearningReach, ...], int]:
    """(newest prompts with an entry, number of all such prompts)."""
    of_entry, values = "WHERE entry_id = :id", {"id": entry_id, "limit": MAX_PROMPTS}
    with database.read() as session:
        uses = read_all(session, LearningUse, f"{of_entry} ORDER BY at DESC LIMIT :limit", values)
        number = ask(session, f"SELECT count(*) FROM learning_uses {of_entry}", values).scalar()
    return tuple(LearningReach(use.call_id, use.session_id, use.agent, use.at) for use in uses), number
