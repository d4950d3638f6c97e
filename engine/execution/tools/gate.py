"""What every tool call goes through before it is done: the agent's policy, the content filter, production targets,
and where one of them says so a person (SPEC 3.5, 3.6, 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.execution.channels import AUTONOMOUS
from engine.execution.live import LiveSession
from engine.execution.permissions import Permissions
from engine.execution.tools.policy import Policy
from engine.model import Refusal, SessionView, Verdict

REFUSING = frozenset({"denied", "blocked", "no_sandbox", "outside", "git_folder", "hard_link", "private_address"})
"""Refusals that are a rail's word, and recorded; all others are a model's mistakes or the world's."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing that a session wants to do. `command` is what does the same in a shell, for the content filter.

    `subjects` are what patterns of the policy are held against; `production` the production targets it names;
    `reasons` what else a person must look at it for; `external`: it talks to a host outside (SPEC 3.5), which a pattern
    of the policy may allow. An answer for the session holds for `key`, or when nothing but the policy asks, and
    `wide_key` is given, for that. `detail` is only called when a person is asked.
    """

    tool: str
    title: str
    subjects: Sequence[str]
    command: str
    key: str
    detail: Callable[[], str]
    wide_key: str = ""
    production: Sequence[str] = ()
    reasons: Sequence[str] = ()
    external: str = ""


class Gate:
    """The gate of one session."""

    def __init__(
        self, live: LiveSession, view: SessionView, folder: Path, policy: Policy, permissions: Permissions
    ) -> None:
        self._live = live
        self._view = view
        self._folder = folder
        self._policy = policy
        self._permissions = permissions

    def weigh(self, wish: Wish) -> tuple[list[str], bool]:
        """Why a person must look at it, [] when he need not; and whether nothing but the policy asks.

        Raises `Refusal` `denied` (the policy), `blocked` (the content filter).
        """
        decision = self._policy.decide(wish.tool, wish.subjects)
        if decision.verdict is Verdict.BLOCK:
            raise Refusal(
                "denied", self._denial(wish, decision.entry), "do it another way, or leave it to the operator"
            )
        reasons = []
        verdict = self._live.judge(wish.command, self._folder)
        if verdict.verdict is Verdict.BLOCK:
            raise Refusal("blocked", f"the content filter blocks this: {verdict.reason}", "do it another way")
        if verdict.verdict is Verdict.ASK:
            reasons.append(verdict.reason)
        if wish.production:
            reasons.append(f"touches production: {', '.join(wish.production[:3])}")
        if wish.external and not (decision.verdict is Verdict.ALLOW and decision.pattern):
            reasons.append(wish.external)
        reasons += wish.reasons
        only_policy = not reasons
        if decision.verdict is Verdict.ASK:
            reasons.append(f"its agent's tools.json says to ask ({decision.entry})")
        return reasons, only_policy

    def clear(self, wish: Wish) -> bool:
        """Let it through; True when a person allowed it.

        Raises `Refusal` as `weigh`, and `denied` when a person says no or nobody is there; `Stopped`.
        """
        reasons, only_policy = self.weigh(wish)
        if not reasons:
            return False
        wide = only_policy and wish.wide_key
        if wide:
            reasons.append(f"an answer for this session holds for every {wish.tool}")
        allowed = self._permissions.ask(
            self._live,
            self._view,
            tool=wish.tool,
            title=wish.title,
            detail=wish.detail(),
            reason="; ".join(reasons),
            key=wish.wide_key if wide else wish.key,
        )
        if allowed:
            return True
        if self._view.mode == AUTONOMOUS:
            said = f"a person must approve this, but nobody is available: {'; '.join(reasons)}"
            raise Refusal("denied", said, "leave it, and say in your answer what is left to do")
        raise Refusal(
            "denied", f"the operator said no to: {wish.title}", "do not try it again; do it another way, or ask"
        )

    def _denial(self, wish: Wish, entry: str) -> str:
        if self._policy.problem:
            return f"no tool may be used: {self._policy.problem}"
        if entry:
            return f"the agent's tools.json denies this ({entry})"
        return f"the agent's tools.json does not allow this {wish.tool}"
