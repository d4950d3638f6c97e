"""What a project and all projects learnt, in every prompt (SPEC 6, 9.6): a part of its own, within a budget of tokens.

Recall ranks what fits a task out of everything that was ever said; what was promoted is little, proven, and holds
whatever the task is, so it does not compete with it. Where there is more than fits, what names the same files or words
as the task comes first, then what is surest and weighs most. Only what the operator said or approved and what the
engine measured is in it (SPEC 6.8), between tags that it cannot close. What `AGENTS.md` says already
in its marked section is not said twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from engine import tokenizer
from engine.config import SettingsSource
from engine.learning.learnings.entries import GLOBAL, Scope, project_key
from engine.learning.learnings.promotion import promotable
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
    sanitise,
)
from engine.model.lessons import folded
from engine.model.sections import LEARNT, read_section
from engine.plain_files import read_plain

BLOCK = "learnt"
PROVENANCE = "learning_sources"

SAID = "Came up again and again in earlier sessions. The task and the project's own guidance come first."
OURS = PromptSource(SourceKind.RUNNER, label="clawpy")
_NO_XML = re.compile("[\ufffe\uffff]")
_HEAD = (PromptLine(f"<{BLOCK}>", OURS), PromptLine(SAID, OURS))
_END = PromptLine(f"</{BLOCK}>", OURS)
PAGE_MOST = 1_000_000
MOST_MISSED = 10
"""After so many that have no room no smaller one is looked for."""


class LearntPart:
    """The part "learnings" of every prompt. Thread-safe."""

    name = "learnings"

    def __init__(
        self,
        files: LearningFiles,
        settings: SettingsSource,
        *,
        count: Callable[[str], int] = tokenizer.count,
        nearer: Callable[[PromptRequest], frozenset[str]] = lambda request: frozenset(),
    ) -> None:
        """`nearer`: lessons that blocks nearer to the agent say; they are not said again."""
        self._nearer = nearer
        self._files = files
        self._settings = settings
        self._count = count

    def part(self, request: PromptRequest) -> Contribution:
        """The block for a request, None in it when there is nothing to say. Its provenance names what is said; the
        notes say what had no room."""
        found, used, lines = self._told(request, self._nearer(request))
        cut = len(found) - len(used)
        notes = (f"learnings: {cut} of {len(found)} had no room",) if cut else ()
        if not used:
            return Contribution(None, notes=notes)
        return Contribution(PromptPart(BLOCK, tuple(lines)), {PROVENANCE: [entry.id for entry in used]}, notes)

    def lessons(self, request: PromptRequest) -> frozenset[str]:
        """What this part and those nearer to the agent say."""
        nearer = self._nearer(request)
        return nearer.union(entry.lesson for entry in self._told(request, nearer)[1])

    def _told(
        self, request: PromptRequest, nearer: frozenset[str]
    ) -> tuple[list[LearningEntry], list[LearningEntry], list[PromptLine]]:
        """What holds here and no nearer block says, what of it has room, and its lines."""
        budget = self._settings.current.memory.learnings_tokens
        found = [entry for entry in self._holding(request.workspace) if entry.lesson not in nearer] if budget else []
        return found, *(self._fit(in_order(found, request.task), budget) if found else ([], []))

    def _holding(self, workspace: str) -> list[LearningEntry]:
        """What holds in a workspace: of its project, and of all."""
        own = self._files.entries(Scope(project_key(workspace)), below=False) if workspace else []
        found = [
            item for item in (*own, *self._files.entries(GLOBAL, below=False)) if promotable(item) and item.may_guide
        ]
        written = _written(workspace) if found else ""
        once: dict[str, LearningEntry] = {}
        for entry in found:
            if not written or folded(entry.text) not in written:
                once.setdefault(entry.lesson, entry)
        return list(once.values())

    def _fit(self, found: Sequence[LearningEntry], budget: int) -> tuple[list[LearningEntry], list[PromptLine]]:
        left = budget - sum(self._count(line.text) for line in (*_HEAD, _END))
        used: list[LearningEntry] = []
        lines: list[PromptLine] = [*_HEAD]
        missed = 0
        for entry in found:
            told = entry_lines(entry)
            tokens = sum(self._count(line.text) for line in told)
            if tokens <= left:
                used.append(entry)
                lines += told
                left -= tokens
            else:
                missed += 1
                if missed == MOST_MISSED:  # to try hundreds of them takes longer than it is worth
                    break
        return used, [*lines, _END]


def in_order(found: Sequence[LearningEntry], task: str) -> list[LearningEntry]:
    """What concerns the task first, then what is surest and weighs most. Pure."""
    wanted, named = prompt_words(task), names(task)

    def rank(entry: LearningEntry) -> tuple[float, float, str]:
        words = prompt_words(entry.text)
        near = len(wanted & words) / len(words) if words else 0.0
        fits = (1.0 if named & names(entry.text) else 0.0) + near
        return -round(fits, 2), -(entry.confidence * entry.importance), entry.id

    return sorted(found, key=rank)


def entry_lines(entry: LearningEntry) -> list[PromptLine]:
    """An entry as lines of a prompt, each with the entry as its source."""
    label = "learnt everywhere" if entry.scope is LearningScope.GLOBAL else "learnt here"
    approved = entry.trust is Trust.QUOTED
    source = PromptSource(SourceKind.LEARNING, entry.id, label, entry.trust, approved)
    text = _NO_XML.sub("\ufffd", sanitise(entry.text)).strip() + (" (approved by the operator)" if approved else "")
    return [
        PromptLine(("- " if number == 0 else "  ") + escape(line), source)
        for number, line in enumerate(text.split("\n"))
    ]


def _written(workspace: str) -> str:
    """What the marked section of the workspace's `AGENTS.md` says, as words; "" when it has none."""
    if not workspace:
        return ""
    try:
        return folded(read_section(read_plain(Path(workspace) / "AGENTS.md", PAGE_MOST), LEARNT))
    except (OSError, ValueError):
        return ""  # not there, or no page: then nothing of it is in the prompt either
