"""git on behalf of a session."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.git import Git, GitError


@dataclass(frozen=True, slots=True)
class SessionGit(Git):
    """git on behalf of a session: marked, so that it ends with the session, and refusing to begin after its end."""

    check_running: Callable[[], None] = field(kw_only=True)
    """Raises `Stopped` when the session is ending."""

    def run(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        allowed: Sequence[int] = (0,),
        timeout: float | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """As `Git.run`. Raises `Stopped` when the session is ending, also out of a git that was ended with it."""
        self.check_running()
        try:
            return Git.run(self, *arguments, stdin=stdin, environment=environment, allowed=allowed, timeout=timeout)
        except GitError:
            self.check_running()
            raise
