"""Checks every tool call before it is carried out (SPEC 3.5, 3.6, 3.8, 4.1).

A call becomes a `ToolRequest`. It is checked by the agent's policy and by the content filter, and for production
targets. If one of these says so, a person is asked.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from engine.config import ACP_PREFIX
from engine.config.settings import SettingsSource
from engine.events.work import ToolRefused
from engine.execution.live_session import LiveSession
from engine.execution.permissions import Permissions
from engine.execution.sandbox.host_rules import parse_rules
from engine.execution.session_store import AUTONOMOUS
from engine.execution.tools import MAX_COMMAND_CHARS, Policy, check_plain_text, join_command_lines
from engine.execution.tools.folder_jail import Jail, shorten_path
from engine.execution.tools.web import Web, WebTarget, check_public, find_known_addresses, is_listed, parse_url
from engine.frozen import frozen
from engine.model import Refusal, SessionView, Verdict
from engine.safety.content.commands import find_programs
from engine.safety.production_targets import find_target_of_file, find_target_of_host, find_targets_of_command
from engine.text import sanitise

RAIL_REFUSALS = frozenset({"denied", "blocked", "no_sandbox", "outside", "git_folder", "hard_link", "private_address"})
"""The codes of refusals by a rail. These are recorded. All other refusals are errors of the model or of the system."""

_FILE_KINDS: Mapping[str, tuple[str, str]] = {
    "read": ("read", "cat"),
    "search": ("read", "cat"),
    "edit": ("edit", "tee"),
    "delete": ("edit", "rm"),
    "move": ("edit", "mv"),
}
"""(tool, shell command) that do the same as an agent's own tool, for the kinds that use files."""


@frozen
class ToolRequest:
    """One action that a session wants to do."""

    tool: str
    title: str
    subjects: Sequence[str]
    """The texts that patterns of the policy are matched with."""
    command: str
    """A shell command that does the same. The content filter checks it."""
    key: str
    """If a person allows a request for the whole session, all requests with the same key are allowed."""
    detail: Callable[[], str]
    """Makes the text for a person. It is called only if a person is asked."""
    wide_key: str = ""
    """The key that is used instead of `key` if only the policy asks."""
    production_targets: Sequence[str] = ()
    """The production targets that the request names."""
    reasons: Sequence[str] = ()
    """Other reasons why a person must be asked."""
    outside_reason: str = ""
    """The reason to ask because the request reaches an outside host (SPEC 3.5); "" for none. A pattern of the policy
    can allow it."""


@frozen
class AgentToolCall:
    """A call of a tool that a coding agent brings itself. If it has no command, URL or paths, a person is asked."""

    kind: str
    """A kind of the Agent Client Protocol: read, edit, delete, move, search, execute, think, fetch, other."""
    title: str
    detail: str = ""
    command: str = ""
    """The command, for the kind execute."""
    url: str = ""
    """The URL, for the kind fetch."""
    paths: Sequence[str] = ()
    """The files, for the kinds in `_FILE_KINDS`."""


@frozen
class ToolServices:
    """The services that the tools of every session use."""

    settings: SettingsSource
    permissions: Permissions
    web: Web
    on_refusal: Callable[[ToolRefused], None]
    """Called for each call that a rail refuses."""


class ReasonsToAsk(NamedTuple):
    """Why a person must be asked about a request."""

    of_rails: list[str]
    of_policy: list[str]


@dataclass
class Gate:
    """The gate of one session. It turns each tool call into a request, and lets the request through or refuses it."""

    live: LiveSession
    view: SessionView
    folder: Path
    policy: Policy
    services: ToolServices
    jail: Jail = field(init=False)

    def __post_init__(self) -> None:
        self.jail = Jail(self.folder)

    def find_unavailable_reason(self, tool: str) -> str:
        """Why this session does not have a tool; "" if it has it."""
        if self.policy.problem:
            return f"no tool may be used: {self.policy.problem}"
        if not self.policy.is_offered(tool):
            return f"the agent's tools.json does not allow {tool}"
        if tool == "exec" and self.view.mode == AUTONOMOUS and not self.live.sandbox.confines:
            return "nothing is executed by itself without a sandbox"
        if tool == "web_search" and not self.services.web.has_search:
            return "no search is configured"
        return ""

    def find_reasons(self, request: ToolRequest) -> ReasonsToAsk:
        """The reasons to ask a person. Without any, nobody is asked.

        Raises `Refusal` `denied` by the policy, `blocked` by the content filter.
        """
        decision = self.policy.decide(request.tool, request.subjects)
        if decision.verdict is Verdict.BLOCK:
            problem = self._describe_denial(request.tool, decision.entry)
            raise Refusal("denied", problem, "do it another way, or leave it to the operator")
        reasons = []
        verdict = self.live.commands.check(request.command)
        if verdict.blocks:
            raise Refusal("blocked", f"the content filter blocks this: {verdict.reason}", "do it another way")
        if verdict.verdict is Verdict.ASK:
            reasons.append(verdict.reason)
        if request.production_targets:
            reasons.append(f"touches production: {', '.join(request.production_targets[:3])}")
        if request.outside_reason and not (decision.verdict is Verdict.ALLOW and decision.is_by_pattern):
            reasons.append(request.outside_reason)
        asks = decision.verdict is Verdict.ASK
        of_policy = [f"its agent's tools.json says to ask ({decision.entry})"] if asks else []
        return ReasonsToAsk([*reasons, *request.reasons], of_policy)

    def _describe_denial(self, tool: str, entry: str) -> str:
        """Why the policy denies a call: by this entry, or "" because none allows it."""
        if entry:
            return f"the agent's tools.json denies this ({entry})"
        return self.find_unavailable_reason(tool) or f"the agent's tools.json does not allow this {tool}"

    def let_through(self, request: ToolRequest) -> bool:
        """Let a request through. Returns whether a person allowed it.

        Raises `Refusal` as `find_reasons`, and `denied` if a person says no or nobody can be asked; `SessionStopped`.
        """
        of_rails, of_policy = self.find_reasons(request)
        reasons = of_rails + of_policy
        if not reasons:
            return False
        wide_key = "" if of_rails else request.wide_key
        if wide_key:
            reasons.append(f"an answer for this session holds for every {request.tool}")
        allowed = self.services.permissions.ask(
            self.live,
            self.view,
            tool=request.tool,
            title=request.title,
            detail=request.detail(),
            reason="; ".join(reasons),
            key=wide_key or request.key,
        )
        if allowed:
            return True
        if self.view.mode == AUTONOMOUS:
            message = f"a person must approve this, but nobody is available: {'; '.join(reasons)}"
            raise Refusal("denied", message, "leave it, and say in your answer what is left to do")
        raise Refusal(
            "denied", f"the operator said no to: {request.title}", "do not try it again; do it another way, or ask"
        )

    # -- requests

    def make_file_request(self, tool: str, relative: str, detail: Callable[[], str]) -> ToolRequest:
        """The request to read, write or edit a file. `relative` is its path relative to the folder."""
        quoted = shlex.quote(f"./{relative}" if relative.startswith("-") else relative)
        return ToolRequest(
            tool,
            title=f"{tool} {shorten_path(relative)}",
            subjects=(relative,),
            command=f"{'cat' if tool == 'read' else 'tee'} {quoted}",
            key=f"{tool}:{relative}",
            detail=detail,
            wide_key=tool,
            production_targets=self._find_production_targets(tool, relative),
        )

    def make_command_request(self, command: str, judged: str, reasons: Sequence[str] = ()) -> ToolRequest:
        """The request for exec. `judged` is the command as it is really run, which the content filter checks."""
        return ToolRequest(
            "exec",
            title=f"run {join_command_lines(command)}",
            subjects=(command, *find_programs(command)),
            command=judged,
            key=f"exec:{command}",
            detail=lambda: command,
            production_targets=find_targets_of_command(command, self.services.settings.current.production),
            reasons=reasons,
        )

    def make_search_request(self, query: str) -> ToolRequest:
        """The request for web_search. It needs no `outside_reason`, because the operator configured its host."""
        return ToolRequest(
            "web_search",
            title=f"search the web: {query}",
            subjects=(query,),
            command=f"curl {shlex.quote(self.services.settings.current.web.search_url)}",
            key=f"web_search:{query}",
            detail=lambda: query,
            wide_key="web_search",
        )

    def make_page_request(self, target: WebTarget, reasons: Sequence[str] = ()) -> ToolRequest:
        """The request for web_fetch. A host that the operator did not list is an outside host (SPEC 3.5)."""
        outside_reason = ""
        if not is_listed(target, self.services.settings.current.web.allow):
            outside_reason = f"talks to {target.netloc}, which has not been allowed yet"
        return ToolRequest(
            "web_fetch",
            title=f"fetch {target.url}",
            subjects=(target.host, target.netloc, target.url),
            command=f"curl -fsSL {shlex.quote(target.url)}",
            key=f"web_fetch:{target.netloc}",
            detail=lambda: target.url,
            production_targets=find_target_of_host(target.host, self.services.settings.current.production),
            reasons=reasons,
            outside_reason=outside_reason,
        )

    def make_agent_tool_request(self, call: AgentToolCall) -> ToolRequest:
        """The request for an agent's own tool. Raises `Refusal` `outside` if it would change files outside of the
        folder."""
        # Only the sandbox confines such a tool.
        reasons = [] if self.live.sandbox.confines else ["no sandbox confines what the agent does"]
        if call.kind == "execute" and call.command.strip():
            return self.make_command_request(
                check_plain_text(call.command, "command", MAX_COMMAND_CHARS), call.command, reasons
            )
        if call.kind == "fetch" and call.url:
            target = parse_url(call.url)
            self._check_own_network(target)
            return self.make_page_request(target, reasons)
        title = sanitise(call.title)
        detail = sanitise(call.detail) or title
        if call.kind in _FILE_KINDS and (call.paths or call.kind in ("read", "search")):
            return self._make_files_request(call, detail, reasons)
        # The call is unknown. It is judged as a command, which is the most that an agent can do.
        return ToolRequest(
            "exec",
            title=title or f"use a tool of kind {sanitise(call.kind)}",
            subjects=(detail,),
            command="true",
            key=f"{call.kind}:{call.title}:{call.detail}",
            detail=lambda: detail,
            reasons=[*reasons, "what it does is not clear from the agent's request"],
        )

    def _check_own_network(self, target: WebTarget) -> None:
        """Raises `Refusal` `private_address` for a private host that the agent's sandbox does not reach."""
        name = self.live.assignment.runner.removeprefix(ACP_PREFIX)
        agent = self.services.settings.current.acp.get(name)
        rules = parse_rules((*self.live.confinement.hosts, *(agent.hosts if agent else ())))
        if self.live.sandbox.confines and not any(rule.matches(target.host, target.port) for rule in rules):
            check_public(target, find_known_addresses(target.host), f"`hosts` of [acp.{name}]")

    def _make_files_request(self, call: AgentToolCall, detail: str, reasons: list[str]) -> ToolRequest:
        """The request for an agent's own tool that uses files."""
        tool, program = _FILE_KINDS[call.kind]
        resolved = []
        for path in call.paths:
            try:
                resolved.append(self.jail.resolve(path))
            except Refusal as refusal:
                # Reading outside is possible: the sandbox also shows an agent other places, without secrets.
                if tool != "read" or refusal.code != "outside":
                    raise
                reasons = [*reasons, f"{shorten_path(path)} is not in the project"]
                resolved.append(path)
        return ToolRequest(
            tool,
            title=sanitise(call.title) or f"{call.kind} {', '.join(map(shorten_path, resolved))}",
            subjects=resolved,
            command=shlex.join([program, *resolved]),
            key=f"{call.kind}:{':'.join(resolved) or call.title}",
            detail=lambda: detail,
            wide_key=tool,
            production_targets=self._find_production_targets(tool, *resolved),
            reasons=reasons,
        )

    def _find_production_targets(self, tool: str, *paths: str) -> list[str]:
        """The production targets that files are; none for a read."""
        targets = self.services.settings.current.production
        files = () if tool == "read" else paths
        return [target for path in files for target in find_target_of_file(path, self.view.workspace, targets)]
