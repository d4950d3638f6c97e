"""From a tool call to what the gate is asked about it: what it is in a shell, which targets it names. No decisions."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.config import SettingsSource
from engine.execution.tools import production
from engine.execution.tools.addresses import Target, target_of
from engine.execution.tools.gate import Wish
from engine.execution.tools.jail import Jail
from engine.execution.tools.paths import shown
from engine.execution.tools.specs import LONGEST_COMMAND, plain
from engine.execution.tools.web import Web
from engine.model import Refusal, SessionView, sanitise

Programs = Callable[[str], Sequence[str]]
"""From a command's text to each program that it runs, with its arguments."""

_KINDS: Mapping[str, tuple[str, str]] = {
    "read": ("read", "cat"),
    "search": ("read", "cat"),
    "edit": ("edit", "tee"),
    "delete": ("edit", "rm"),
    "move": ("edit", "mv"),
}
"""An agent's own kinds of tools that touch files: which of ours each is like, and what does the same in a shell."""


class Wishes:
    """The wishes of one session. `confined`: its processes are held by the operating system."""

    def __init__(
        self,
        jail: Jail,
        view: SessionView,
        settings: SettingsSource,
        web: Web,
        programs: Programs,
        *,
        confined: bool,
    ) -> None:
        self._jail = jail
        self._view = view
        self._settings = settings
        self._web = web
        self._programs = programs
        self._confined = confined

    def file(self, tool: str, relative: str, detail: Callable[[], str]) -> Wish:
        """read, write or edit of a path relative to the folder."""
        spelled = shlex.quote(relative if not relative.startswith("-") else f"./{relative}")
        return Wish(
            tool,
            f"{tool} {shown(relative)}",
            (relative,),
            f"cat {spelled}" if tool == "read" else f"tee {spelled}",
            f"{tool}:{relative}",
            detail,
            wide_key=tool,
            production=() if tool == "read" else self._production(relative),
        )

    def command(self, command: str, judged: str, reasons: Sequence[str] = ()) -> Wish:
        """exec; `judged` is the command as it is really run."""
        return Wish(
            "exec",
            f"run {' '.join(command.split())}",
            (command, *self._programs(command)),
            judged,
            f"exec:{command}",
            lambda: command,
            production=production.of_command(command, self._settings.current.production),
            reasons=reasons,
        )

    def search(self, query: str) -> Wish:
        """web_search; the operator named whom it asks."""
        return Wish(
            "web_search",
            f"search the web: {query}",
            (query,),
            f"curl {shlex.quote(self._settings.current.web.search_url)}",
            f"web_search:{query}",
            lambda: query,
            wide_key="web_search",
        )

    def page(self, target: Target, reasons: Sequence[str] = ()) -> Wish:
        """web_fetch; a host that the operator did not list is communication with the outside (SPEC 3.5)."""
        return Wish(
            "web_fetch",
            f"fetch {target.url}",
            (target.host, target.address, target.url),
            f"curl -fsSL {shlex.quote(target.url)}",
            f"web_fetch:{target.address}",
            lambda: target.url,
            production=production.of_host(target.host, self._settings.current.production),
            reasons=reasons,
            external="" if self._web.unasked(target) else f"talks to {target.address}, which has not been allowed yet",
        )

    def foreign(self, kind: str, title: str, detail: str, arguments: Mapping[str, Any]) -> Wish:
        """What an agent wants to do with a tool of its own; see `Toolbelt.may`. Raises `Refusal` for files outside."""
        # Such a tool is held by the operating system alone.
        reasons = [] if self._confined else ["no sandbox confines what the agent does"]
        command, url, named = (arguments.get(name) for name in ("command", "url", "paths"))
        if kind == "execute" and isinstance(command, str) and command.strip():
            return self.command(plain(command, "command", LONGEST_COMMAND), command, reasons)
        if kind == "fetch" and isinstance(url, str):
            return self.page(target_of(url), reasons)
        paths = [one for one in named if isinstance(one, str)] if isinstance(named, (list, tuple)) else []
        if kind in _KINDS and (paths or kind in ("read", "search")):
            return self._files(kind, title, detail, paths, reasons)
        # Whatever it is, a person who allows it allows the most that an agent can do.
        words = sanitise(detail) or sanitise(title)
        return Wish(
            "exec",
            sanitise(title) or f"use a tool of kind {sanitise(kind)}",
            (words,),
            "true",
            f"{kind}:{title}:{detail}",
            lambda: words,
            reasons=[*reasons, "what it does is not clear from the agent's request"],
        )

    def _files(self, kind: str, title: str, detail: str, paths: Sequence[str], reasons: list[str]) -> Wish:
        tool, program = _KINDS[kind]
        found = []
        for path in paths:
            try:
                found.append(self._jail.relative(path))
            except Refusal as refusal:
                # The sandbox shows an agent more than the project, and hides what is secret.
                if tool != "read" or refusal.code != "outside":
                    raise
                reasons = [*reasons, f"{shown(path)} is not in the project"]
                found.append(path)
        words = sanitise(detail) or sanitise(title)
        return Wish(
            tool,
            sanitise(title) or f"{kind} {', '.join(shown(path) for path in found)}",
            found,
            shlex.join([program, *found]),
            f"{kind}:{':'.join(found) or title}",
            lambda: words,
            wide_key=tool,
            production=() if tool == "read" else [one for path in found for one in self._production(path)],
            reasons=reasons,
        )

    def _production(self, relative: str) -> tuple[str, ...]:
        return production.of_path(relative, self._view.workspace, self._settings.current.production)
