"""The part of a prompt with promoted learnings (SPEC 6, 9.6), within a token budget of its own.

Promoted learnings are few and hold for any task, so they do not compete with recall. Over budget, those that name the
task's files or words come first, then the most certain and important. Only text that the operator wrote or approved,
or that the engine measured, is included (SPEC 6.8), escaped. What the marked section of `AGENTS.md` says is not
repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from engine import tokenizer
from engine.config import SettingsSource
from engine.files import read_plain
from engine.learning.learnings.entries import GLOBAL, Scope, project_key
from engine.learning.learnings.promotion import is_promotable
from engine.learning.learnings.recurrence import names
from engine.learning.learnings.store import LearningFiles
from engine.model import (
    Contribution,
    LearningEntry,
    LearningScope,
    PromptLine,
    PromptPart,
    PromptRequest,
    PromptSource,
    SourceKind,
    Trust,
    prompt_words,
)
from engine.model.learnings import normalise
from engine.model.prompts import OWN_TEXT
from engine.model.text import LEARNT, approved_text, read_section, without_invalid_xml

BLOCK = "learnt"
PROVENANCE = "learning_sources"

INTRODUCTION = "Came up again and again in earlier sessions. The task and the project's own guidance come first."
_HEAD = (PromptLine(f"<{BLOCK}>", OWN_TEXT), PromptLine(INTRODUCTION, OWN_TEXT))
_END = PromptLine(f"</{BLOCK}>", OWN_TEXT)
MAX_PAGE_BYTES = 1_000_000
MAX_MISSES = 10
"""After so many that have no room no smaller one is looked for."""


class LearningsPart:
    """The part "learnings" of every prompt. Thread-safe."""

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
