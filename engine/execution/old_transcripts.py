"""Transcripts and conversations that were stored before what is secret in them was known (SPEC 3.8, 11.1).

What is stored now is clean when it is stored; an earlier version stored keys as they came. Each file is gone through
once, by and by, beside what runs. A crash costs no more than a round: what is clean already does not change.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from engine.execution.runners.model.history import CONVERSATION, KEPT_AS_IT_IS
from engine.model.secrets import RULES, Redactor, redact, redact_json
from engine.storage import state
from engine.storage.database import Database
from engine.storage.files import write_atomic

log = logging.getLogger(__name__)

STATE = "transcripts.cleaned"

MOST = 8 * 1024 * 1024
"""Bytes that are read in one round, and what is left of the last file: half a second."""


class OldTranscripts:
    """Goes through the transcripts of a home, once for each state of the rules by which secrets are known."""

    def __init__(
        self,
        folder: Path,
        database: Database,
        *,
        over: Callable[[str], bool],
        secrets: Callable[[], Iterable[str]],
        report: Callable[[str, str], None],
    ) -> None:
        """`over(session)` says whether nothing writes a session's files any more; `report(where, message)` tells the
        operator of a fault."""
        self._folder = folder
        self._database = database
        self._over = over
        self._secrets = secrets
        self._report = report
        self._after: str | None = None
        self._known = False
        self._again = False

    def wanted(self) -> bool:
        """Whether there may be files that were not gone through."""
        if not self._known:
            with self._database.read() as session:
                stored = state.get(session, STATE) or {}
            self._after = stored.get("after") if stored.get("rules") == RULES else ""
            self._known = True
        return self._after is not None

    def round(self) -> int:
        """Go through some files, at least one; returns out of how many something was cut.

        One that cannot be read or written is told of. With it, or with one that a session still writes, all are gone
        through again after the next start.
        """
        if not self.wanted():
            return 0
        known = tuple(self._secrets())
        left, cut = MOST, 0
        names = sorted(path.name for path in self._folder.glob("*.jsonl") if path.name > (self._after or ""))
        for name in names:
            if left <= 0:
                break
            path = self._folder / name
            try:
                left -= path.stat().st_size
                if self._over(name.partition(".")[0]):
                    cut += clean(path, known)
                else:
                    self._again = True
            except FileNotFoundError:
                log.info("%s disappeared while transcripts were checked", path)
            except OSError as error:
                self._again = True
                told = f"secrets cannot be removed from {path}: {error.strerror or error}"
                self._report("transcripts", f"{told}; make it writable; the next start tries again")
            self._after = name
        else:
            self._after = None
        after = "" if self._after is None and self._again else self._after
        self._database.write(lambda tx: state.put(tx, STATE, {"rules": RULES, "after": after}))
        return cut


def clean(path: Path, known: Iterable[str] = ()) -> bool:
    """Cut what is secret out of one file, which has as many lines as before; whether there was anything. The file is
    whole at every moment. Raises OSError."""
    known = tuple(known)
    if all(before == after for before, after in _lines(path, known)):
        return False
    write_atomic(path, clean_lines(path, known))
    return True


def clean_lines(path: Path, known: Iterable[str] = ()) -> Iterator[bytes]:
    """The lines of one file with what is secret cut out of them; the file stays as it is. Raises OSError."""
    return (after for _, after in _lines(path, tuple(known)))


def _lines(path: Path, known: tuple[str, ...]) -> Iterator[tuple[bytes, bytes]]:
    """Every line as it is, and as it should be. A private key goes over several lines of one kind."""
    redactors: dict[str, Redactor] = {}
    conversation = path.name.endswith(CONVERSATION)

    def cleaned(entry: Any) -> Any:
        if conversation or not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
            return redact_json(entry, known, kept=KEPT_AS_IT_IS)
        (text,) = redactors.setdefault(str(entry.get("kind")), Redactor(lambda: known)).lines([entry["text"]])
        return {**entry, "text": text}

    with path.open("rb") as file:
        for line in file:
            try:
                entry = json.loads(line)
                after = cleaned(entry)
            except (ValueError, RecursionError):  # what a crash left half-written, or somebody wrote
                yield line, redact(line.decode(errors="surrogateescape"), known).encode(errors="surrogateescape")
                continue
            if after != entry:
                yield line, (json.dumps(after, ensure_ascii=False) + "\n").encode(errors="replace")
            else:
                yield line, line
