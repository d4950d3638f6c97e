"""What sessions learnt, when somebody's words are to be forgotten (SPEC 4.10): the words go, an empty entry that holds
no longer stays, so that provenance is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

from engine.learning.learnings.store import Change, LearningFiles, texts_of
from engine.model import LearningEntry, LearningStatus
from engine.storage.erasing import Words

FORGOTTEN = "forgotten"


class LearningTexts:
    """Entries of all scopes; see `engine.memory.forget.Store`."""

    name = "learnings"

    def __init__(
        self,
        files: LearningFiles,
        vectors_gone: Callable[[Iterable[str]], None],
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """While `alone` nothing is written that was made of entries as they were before."""
        self._files = files
        self._vectors_gone = vectors_gone
        self._alone = alone

    def find(self, wanted: Words, /) -> Iterator[tuple[str, str]]:
        """The entries that hold it: id and text."""
        for one in self._files.entries():
            if any(map(wanted.holds, texts_of(one))):
                yield one.id, one.text or one.title

    def erase(self, wanted: Words, /) -> int:
        """Take it out; how many entries. Again finds nothing."""
        with self._alone(), self._files.alone():
            self._files.forgetting(wanted.holds)
            found = [one for one in self._files.entries() if any(map(wanted.holds, texts_of(one)))]
            self._vectors_gone([one.text for one in found])
            self._files.apply([_emptied(one) for one in found])
            return len(found)

    def text_of(self, id: str) -> str | None:
        """What an entry says, None when `id` is none."""
        found = next((one for one in self._files.entries() if one.id == id), None)
        return None if found is None else found.text or None


def _emptied(one: LearningEntry) -> Change:
    gone = {"title": "", "about": "", "session_task": "", "reasons": [], "review": "", "review_since": ""}
    ended = {"status": LearningStatus.RETIRED.value, "retired_because": FORGOTTEN}
    return Change(one.path, one.id, {**gone, **ended}, text="")
