"""A still engine with fixed data: the ports that the console calls, and nothing behind them.

The only fake engine there is: screens are looked at, and tested, on something that does not move by itself. Every call
is noted in `noted`, and `refuse` makes the next call of a name raise.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from engine.events import EventBus
from engine.prediction.earning import Record, earning
from engine.values import (
    AgentView,
    Assignment,
    Band,
    Burn,
    Card,
    ChainStep,
    ChangeSet,
    ChangeState,
    CheckResult,
    ConfidenceParts,
    CostState,
    CycleReport,
    DecidedBy,
    FileChange,
    FileDiff,
    Hold,
    LandPreview,
    ModelCall,
    Outcome,
    PermissionAnswer,
    PermissionRequest,
    PromptLine,
    PromptPart,
    PromptSource,
    RailState,
    RailVerdict,
    Refusal,
    SessionState,
    SessionView,
    Signal,
    Source,
    SourceKind,
    Status,
    StopLevel,
    Task,
    TranscriptLine,
    Verdict,
    Waiting,
)
from engine.views import Since
from tests.console.stand_in_memory import Files, Recalling, Remembering

NOW = datetime(2026, 1, 5, 14, 12, 30, tzinfo=UTC)
SHOP, BLOG = "/home/ada/src/shop", "/home/ada/src/blog"

RAILS = ("rate", "loop", "cost", "content", "gate", "kill")


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def allow(*others: RailVerdict) -> tuple[RailVerdict, ...]:
    """Every rail allows, except those in `others`."""
    named = {one.rail: one for one in others}
    return tuple(named.get(rail, RailVerdict(rail, Verdict.ALLOW, "")) for rail in RAILS)


def signals(git: str, *, tasks: str = "", relevance: float = 0.9) -> tuple[Signal, ...]:
    return (
        Signal("time_of_day", 0.3, 0.5, ("afternoon: deep work",)),
        Signal("silence", 0.2, 0.4, ("12 minutes since you last did anything",)),
        Signal("active_tasks", 0.2, 0.3 if tasks else 0.0, (tasks,) if tasks else ()),
        Signal("recent_conversations", 0.15, 0.0),
        Signal("git_state", 0.1, relevance, (git,)),
        Signal("calendar", 0.05, 0.0, (), "no calendar is configured"),
    )


def card(number: int, prompt: str, **more: Any) -> Card:
    flow = more.pop("flow", "run_tests")
    parameters = more.pop("parameters", {})
    workspace, channel = more.pop("workspace", SHOP), more.pop("channel", "koji-core")
    confidence = more.pop("confidence", 0.5)
    bands = ((0.8, Band.ACT), (0.6, Band.SUGGESTED), (0.0, Band.CARD))
    values: dict[str, Any] = {
        "kind": flow or "prose",
        "agent": "backend_builder",
        "band": next(band for limit, band in bands if confidence >= limit),
        "parts": ConfidenceParts(0.71, 0.62, 0.80, 0.55, confidence, ("31 decisions", "6 of 7 like it", "", "")),
        "reasoning": "You usually run the tests of what you changed before noon and after lunch; they have not run "
        "since 11:02, and three modules changed since.",
        "status": Status.PENDING,
        "source": Source.TEMPLATE,
        "created_at": ago(minutes=8 + number),
        "expires_at": ago(hours=-23),
        "signals": signals("3 files changed since 11:02"),
        "verdicts": allow(),
        "estimate": 50_000,
        "undo_note": "nothing to undo, nothing is written",
    } | more
    return Card(
        id=f"pred_{number:012}",
        assignment=Assignment(prompt, channel, workspace, "flow" if flow else "prose", flow, parameters),
        confidence=confidence,
        **values,
    )


def cards() -> list[Card]:
    return [
        card(
            1,
            "Run the tests of the 3 modules changed since the last run",
            confidence=0.72,
            signals=signals("3 files changed since 11:02", tasks='"cart rounding" is 4 days old'),
            parameters={"paths": ["shop/cart.py", "shop/price.py", "shop/tax.py"]},
        ),
        card(
            2,
            "HEAD is red since 11:02: bisect test_cart between v1.4 and HEAD",
            flow="bisect",
            confidence=0.66,
            parameters={"test": "tests/test_cart.py::test_total", "good": "a1b2c3d", "bad": "9f8e7d6"},
            novel=True,
        ),
        card(
            3,
            "Rehearse merging main into feature/checkout and say which files conflict",
            flow="rehearse_merge",
            confidence=0.58,
            parameters={"source": "main", "target": "feature/checkout"},
            verdicts=allow(
                RailVerdict("gate", Verdict.ASK, "touches production: branch main; first days", "production,onboarding")
            ),
        ),
        card(
            4,
            "Draft the change log of the 5 commits since v1.2",
            flow="draft_changelog",
            channel="chronicle-hub",
            workspace=BLOG,
            confidence=0.47,
            check_only=False,
            undo_note="landing can be undone while no landed file changed",
            parameters={"since": "v1.2", "until": "HEAD"},
        ),
        card(5, "Does HEAD pass without your 2 uncommitted files?", flow="check_clean_head", confidence=0.41),
    ]


def recent() -> list[Card]:
    past = [
        (11, "Rerun the 4 slowest tests 20 times for flakiness", Status.EXECUTED, Outcome.SUCCEEDED, 22),
        (12, "Lint the 6 files changed today", Status.EXECUTED, Outcome.FAILED, 41),
        (13, "Report merged and stale branches", Status.REJECTED, None, 75),
        (14, "Run the whole suite before pushing 4 commits", Status.EXECUTED, Outcome.SUCCEEDED, 190),
    ]
    return [
        card(
            number,
            prompt,
            status=status,
            outcome=outcome,
            decided_by=DecidedBy.OPERATOR,
            decided_at=ago(minutes=minutes),
        )
        for number, prompt, status, outcome, minutes in past
    ]


def session(number: int, prompt: str, state: SessionState, minutes: float, **more: Any) -> SessionView:
    values: dict[str, Any] = {
        "prediction_id": f"pred_{number + 10:012}",
        "workspace": SHOP,
        "channel": "koji-core",
        "agent": "backend_builder",
        "runner": "flow",
        "flow": "run_tests",
        "mode": "approved",
        "sandbox": "bubblewrap: read-only system, no network",
        "cwd": SHOP,
        "created_at": ago(minutes=minutes),
        "started_at": ago(minutes=minutes),
        "ended_at": ago(minutes=minutes - 1) if state.over else None,
        "tokens": 0,
        "cost": 0,
        "summary": "",
    } | more
    return SessionView(id=f"sess_{number:012}", prompt=prompt, state=state, **values)


def sessions() -> list[SessionView]:
    red = CheckResult("pytest", 23, 1, 2, 0, 4.2, ("tests/test_cart.py::test_total",))
    return [
        session(1, "Hunt flakes: 4 slowest tests, 20 times", SessionState.RUNNING, 0.25, flow="hunt_flakes", lines=9),
        session(
            2,
            "Format and fix the 3 files that lint complains of",
            SessionState.SUCCEEDED,
            5,
            flow="fix_lint",
            summary="3 files changed, lint is clean",
            change_set_id="chg_000000000001",
            cwd="/home/ada/.cache/clawpy/worktrees/sess_000000000002",
            lines=6,
        ),
        session(
            3, "Run the tests of the 3 modules", SessionState.SUCCEEDED, 22, summary="1 failed, 23 passed", check=red
        ),
        session(
            4, "Lint the 6 files changed today", SessionState.FAILED, 41, flow="lint", error="ruff is not found",
            summary="ruff is not found", channel="koji-core",
        ),
        session(
            5, "Summarise the day so far", SessionState.SUCCEEDED, 64, flow="summarise_day", channel="chronicle-hub",
            agent="chronicler", summary="4 commits, 2 test runs, 1 branch merged", workspace=BLOG,
        ),
    ]  # fmt: skip


TRANSCRIPTS = {
    "sess_000000000001": [
        ("note", "hunting flakes in 4 tests, 20 rounds each"),
        ("command", "python -m pytest -q tests/test_cart.py tests/test_tax.py -p no:randomly"),
        ("output", "....F......                                              [ 46%]"),
        ("output", ".............                                            [100%]"),
        ("output", "1 failed, 23 passed in 4.21s"),
        ("exit", "exit 1 · 4.6 s"),
        ("command", "python -m pytest -q tests/test_cart.py tests/test_tax.py -p no:randomly"),
        ("output", ".......... [x] 🎉 wide 漢字 stay in their column"),
        ("output", "result [/not markup]"),
    ],
    "sess_000000000002": [
        ("note", "worktree made from the present tree, 2 uncommitted files included"),
        ("command", "ruff check --fix shop/cart.py shop/price.py shop/tax.py"),
        ("output", "Found 7 errors (7 fixed, 0 remaining)."),
        ("exit", "exit 0 · 0.1 s"),
        ("command", "ruff format shop/cart.py shop/price.py shop/tax.py"),
        ("exit", "exit 0 · 0.1 s"),
    ],
}

AGENT = "sess_000000000009"


def agent_session() -> SessionView:
    return session(
        9, "Round cart totals to whole cents, with a test", SessionState.RUNNING, 1.5, runner="model", flow=None,
        agent="backend_builder", tokens=4210, cost=18_000, lines=13,
        cwd="/home/ada/.cache/clawpy/worktrees/sess_000000000009",
    )  # fmt: skip


AGENT_TRANSCRIPT = [
    ("thought", "The totals are rounded in two places; the second one is the one that shows."),
    ("say", "I look at the cart first."),
    ("say", "It rounds twice: I shall round once, at the end."),
    ("tool", "read shop/cart.py"),
    ("tool", "edit shop/cart.py: 1 place"),
    ("command", "python -m pytest -q tests/test_cart.py"),
    ("output", ".....                                                    [100%]"),
    ("exit", "exit 0 · 1.2 s"),
    ("reply", "use Decimal, not float"),
    ("say", "Then I take Decimal."),
    ("tool", "exec git push origin main"),
    ("ask", "run `git push origin main`: it leaves this machine (perm_000000000001)"),
    ("error", "the provider answered 529, tried again in 2 s"),
]


def model_calls() -> list[ModelCall]:
    values: dict[str, Any] = {"session_id": AGENT, "agent": "backend_builder", "provider": "openai", "run_kind": "task"}
    return [
        ModelCall(
            "call_000000000001", model="gpt-5-mini", state="done", started_at=ago(minutes=1.4), seconds=3.2,
            input_tokens=2810, output_tokens=190, cost=11_000,
            notes=("recall was left out: no answer within 0.5 s",), **values,
        ),
        ModelCall(
            "call_000000000002", model="gpt-5-mini", state="running", started_at=ago(minutes=0.2),
            follows="call_000000000001", price_known=False, **values,
        ),
    ]  # fmt: skip


def permissions() -> list[PermissionRequest]:
    def one(number: int, tool: str, title: str, detail: str, reason: str, seconds: float) -> PermissionRequest:
        return PermissionRequest(
            f"perm_{number:012}", AGENT, "backend_builder", SHOP, tool, title, detail, reason, ago(seconds=seconds)
        )

    return [
        one(1, "exec", "run `git push origin main`", "git push origin main", "it leaves this machine", 80),
        one(2, "write", "write deploy.yml", "@@ -1,2 +1,3 @@\n on: push\n+  branches: [main]\n-old", "CI is ask", 20),
    ]


def _lines(kind: SourceKind, ref: str, label: str, *texts: str) -> tuple[PromptLine, ...]:
    return tuple(PromptLine(text, PromptSource(kind, ref, label)) for text in texts)


OURS = (SourceKind.RUNNER, "", "clawpy")
SOUL_FILE = "/home/ada/.local/share/clawpy/agents/backend_builder/soul.md"
PROMPT = (
    PromptPart(
        "identity",
        (
            *_lines(*OURS, '<identity agent="backend_builder">'),
            *_lines(SourceKind.SOUL, SOUL_FILE, "backend_builder/soul.md", "# Builder", "Builds small, tests first. "
                    "Says what is not known, and asks before anything leaves this machine or cannot be undone."),
            *_lines(*OURS, "</identity>"),
        ),
        "system", 41,
    ),
    PromptPart(
        "project",
        (
            *_lines(*OURS, "<project>", '<file name="AGENTS.md">'),
            *_lines(SourceKind.PROJECT, f"{SHOP}/AGENTS.md", "AGENTS.md", "Use Decimal for money.", "Run pytest -q."),
            *_lines(*OURS, "</file>", "</project>"),
        ),
        "system", 28,
    ),
    PromptPart(
        "task",
        (
            *_lines(*OURS, "<task>"),
            *_lines(SourceKind.TASK, "pred_000000000001", "task", "Round cart totals to whole cents, with a test"),
            *_lines(*OURS, "</task>"),
        ),
        "user", 14,
    ),
)  # fmt: skip
TURN = (
    PromptPart(
        "answer", _lines(SourceKind.CONVERSATION, AGENT, "backend_builder", "I look at the cart first."), "assistant", 7
    ),
    PromptPart("read", _lines(SourceKind.CONVERSATION, AGENT, "read", "def total(cart): …"), "tool", 6),
    PromptPart("reply", _lines(SourceKind.OPERATOR, AGENT, "you", "use Decimal, not float"), "user", 5),
)

HUNKS = """@@ -12,7 +12,7 @@ def total(cart: Cart) -> Decimal:
     lines = [line.amount * line.price for line in cart.lines]
-    return round(sum(lines),2)
+    return round(sum(lines), 2)


@@ -31,5 +31,4 @@ def discount(cart: Cart) -> Decimal:
-import os
     if cart.coupon is None:
         return Decimal(0)
"""


def change_sets() -> list[ChangeSet]:
    files = (
        FileChange("shop/cart.py", "modified", 4, 6),
        FileChange("shop/price.py", "modified", 2, 2),
        FileChange("shop/rounding.py", "added", 18, 0),
    )
    green = CheckResult("pytest", 24, 0, 2, 0, 4.0)
    return [
        ChangeSet(
            "chg_000000000001", "sess_000000000002", "pred_000000000012", SHOP, ChangeState.WAITING, files,
            "Format and fix the 3 files that lint complains of", ago(minutes=4), check=green,
        )
    ]  # fmt: skip


def tasks() -> list[Task]:
    def one(number: int, title: str, state: str, minutes: float, session_id: str | None = None, note: str = "") -> Task:
        return Task(
            f"task_{number}", title, state, "koji-core", SHOP, "session", ago(minutes=minutes), ago(minutes=minutes),
            session_id, note,
        )  # fmt: skip

    return [
        one(1, "Hunt flakes: 4 slowest tests", "running", 0.25, "sess_000000000001"),
        one(2, "cart rounding", "open", 5760),
        one(3, "Format and fix 3 files", "done", 4, "sess_000000000002"),
        one(4, "Run the tests of the 3 modules", "done", 21, "sess_000000000003"),
        one(5, "Lint the 6 files", "failed", 41, "sess_000000000004", "ruff is not found"),
    ]


def agents() -> list[AgentView]:
    def one(id: str, tier: int, reports_to: str, channels: tuple[str, ...] = (), tokens: int = 0) -> AgentView:
        return AgentView(id, id.replace("_", " "), reports_to, tier, "name", "", channels, "idle", tokens)

    return [
        one("backend_builder", 4, "backend_lead", ("koji-core",), 3210),
        one("chronicler", 4, "coo", ("chronicle-hub",), 1130),
        one("dreamer", 4, "cino", ("dream-weaver",)),
        one("researcher", 4, "cro", ("research",), 5400),
        one("gardener", 4, "coo", ("garden",)),
        one("ceo", 1, "owner"),
        one("cto", 2, "ceo"),
    ]


def ledger(limit: int = 50, *, kinds: tuple[str, ...] = (), before: int | None = None) -> list[Any]:
    """Rows of the event ledger, the newest first: 450 of them."""
    rows = [
        SimpleNamespace(
            id=number, at=ago(minutes=450 - number), workspace=SHOP,
            kind=("SessionEnded", "CostSettled", "TriggerBlocked")[number % 3],
            subject=f"sess_{number % 5 + 1:012}", payload={"state": "succeeded", "cost": number},
        )
        for number in range(450, 0, -1)
    ]  # fmt: skip
    return [one for one in rows if before is None or one.id < before][:limit]


class Port:
    """A port that notes what was called and refuses what it was told to refuse."""

    def __init__(self, engine: StandIn) -> None:
        self._engine = engine

    def note(self, name: str, *arguments: Any) -> None:
        self._engine.noted.append((name, *arguments))
        if (refusal := self._engine.refuse.pop(name, None)) is not None:
            raise refusal


class Cards(Port):
    def __init__(self, engine: StandIn) -> None:
        super().__init__(engine)
        self.all = {one.id: one for one in [*cards(), *recent()]}

    def pending(self, *, workspace: str | None = None, channel: str | None = None, include_snoozed: bool = False):
        return [one for one in self.all.values() if one.status is Status.PENDING and one.snoozed_until is None]

    def get(self, id: str) -> Card:
        return self.all[id]

    def recent(self, limit: int = 50, workspace: str | None = None) -> list[Card]:
        return [one for one in self.all.values() if one.status is not Status.PENDING][:limit]

    def _decide(self, id: str, status: Status) -> Card:
        self.all[id] = dataclasses.replace(
            self.all[id], status=status, decided_by=DecidedBy.OPERATOR, decided_at=self._engine.now
        )
        return self.all[id]

    def approve(
        self, id: str, *, edit: str | None = None, parameters: Mapping[str, Any] | None = None,
        by: DecidedBy = DecidedBy.OPERATOR,
    ) -> Card:  # fmt: skip
        self.note("approve", id, edit if edit is not None else parameters)
        return self._decide(id, Status.CONFIRMED)

    def dismiss(self, id: str, *, by: DecidedBy = DecidedBy.OPERATOR) -> Card:
        self.note("dismiss", id)
        return self._decide(id, Status.REJECTED)

    def snooze(self, id: str, *, span: timedelta = timedelta(hours=2)) -> Card:
        self.note("snooze", id)
        self.all[id] = dataclasses.replace(self.all[id], snoozed_until=self._engine.now + span)
        return self.all[id]

    def undo(self, id: str) -> Card:
        self.note("undo", id)
        self.all[id] = dataclasses.replace(self.all[id], status=Status.PENDING, snoozed_until=None, decided_by=None)
        return self.all[id]

    def propose(self, text: str, *, workspace: str, channel: str | None = None, continues: str = "") -> Card:
        self.note("propose", text, workspace, *([continues] if continues else []))
        made = card(90, text, flow=None, source=Source.OPERATOR, workspace=workspace, confidence=1.0)
        self.all[made.id] = made
        return made

    def mark_shown(self, ids: list[str]) -> None:
        self.note("mark_shown", *ids)

    def rails(self, id: str) -> tuple[RailVerdict, ...]:
        return self.all[id].verdicts

    def similar(self, id: str) -> tuple[int, int, str]:
        return 6, 7, "mostly in the morning"


class Sessions(Port):
    def __init__(self, engine: StandIn) -> None:
        super().__init__(engine)
        self.all = sessions()
        self.sandbox = SimpleNamespace(describe=lambda network: "bubblewrap: read-only system, no network")
        self.transcripts = {
            id: [TranscriptLine(number, NOW, kind, text) for number, (kind, text) in enumerate(lines, 1)]
            for id, lines in TRANSCRIPTS.items()
        }

    def list(self, *, workspace: str | None = None, limit: int = 50) -> list[SessionView]:
        return self.all[:limit]

    def get(self, id: str) -> SessionView:
        return next(one for one in self.all if one.id == id)

    def transcript(self, id: str, *, after: int = 0, limit: int = 2000) -> list[TranscriptLine]:
        return self.transcripts.get(id, [])[after : after + limit]

    def stop(self, id: str, reason: str) -> None:
        self.note("stop_session", id)

    def reply(self, id: str, text: str) -> None:
        self.note("reply", id, text)


class Permissions(Port):
    def __init__(self, engine: StandIn) -> None:
        super().__init__(engine)
        self.all: list[PermissionRequest] = []

    def waiting(self) -> list[PermissionRequest]:
        return list(self.all)

    def answer(self, id: str, answer: PermissionAnswer, by: str = "operator") -> None:
        self.note("answer", id, str(answer))
        self.all = [one for one in self.all if one.id != id]


class Hiring(Port):
    def __init__(self, engine: StandIn) -> None:
        super().__init__(engine)
        self.serves = "model"
        self.here: list[Any] = []

    def served(self, channel: str = "koji-core") -> str:
        return self.serves

    def found(self) -> list[Any]:
        return self.here

    def hire(self, name: str, channel: str = "koji-core") -> Any:
        self.note("hire", name)
        return next(one for one in self.here if one.name == name)


class Calls(Port):
    def __init__(self, engine: StandIn) -> None:
        super().__init__(engine)
        self.all: dict[str, list[ModelCall]] = {}

    def for_session(self, id: str) -> list[ModelCall]:
        return self.all.get(id, [])

    def prompt(self, id: str) -> tuple[PromptPart, ...]:
        return PROMPT if id.endswith("1") else (*PROMPT, *TURN)

    def that_recalled(self, id: str, limit: int = 20) -> list[ModelCall]:
        return model_calls()[:1] if id.endswith(("1", "3")) else []

    def reply(self, id: str) -> str:
        return "I look at the cart first." if id.endswith("1") else ""


class Changes(Port):
    def __init__(self, engine: StandIn) -> None:
        super().__init__(engine)
        self.all = change_sets()

    def list(self, *, state: ChangeState | None = None, workspace: str | None = None, limit: int = 50):
        return self.all[:limit]

    def diff(self, id: str) -> list[Any]:
        return [FileDiff(one.path, one.status, "", False, HUNKS)
                for one in self.all[0].files]  # fmt: skip

    def _set(self, id: str, state: ChangeState, **more: Any) -> ChangeSet:
        self.note(state.value, id)
        self.all = [dataclasses.replace(one, state=state, **more) if one.id == id else one for one in self.all]
        return self.all[0]

    def preview_land(self, id: str) -> Any:
        return LandPreview(True, files=3)

    def land(self, id: str) -> ChangeSet:
        return self._set(id, ChangeState.LANDED)

    def branch(self, id: str) -> ChangeSet:
        return self._set(id, ChangeState.BRANCHED, branch="clawpy/sess_000000000002")

    def discard(self, id: str) -> ChangeSet:
        return self._set(id, ChangeState.DISCARDED)

    def undo(self, id: str) -> ChangeSet:
        return self._set(id, ChangeState.UNDONE)


LEVELS = (
    ("config", "crossPollEnabled is true", "turn crossPollEnabled on"),
    ("api", "on", "switch it on over the API, or start again"),
    ("key", "not pressed", "resume stop"),
    ("outside", "no stop file", "resume stop"),
)


class Safety(Port):
    def __init__(self, engine: StandIn) -> None:
        super().__init__(engine)
        self._holds: list[Hold] = []
        self.lifted: set[str] = set()
        self.costs = SimpleNamespace(
            state=lambda: CostState(150_000, 1_200_000, 9_000_000, 2_000_000, 20_000_000, 200_000_000),
            history=burns,
        )

    def holds(self) -> list[Hold]:
        return list(self._holds)

    def hold(self, word: str, reason: str, until: datetime | None = None) -> None:
        """Place a hold, for a test."""
        self._holds.append(Hold(word, reason, self._engine.now, until))

    def stop(self, reason: str, by: str) -> None:
        self.note("stop", reason)
        self._holds.append(Hold("stop", reason, self._engine.now, None, by))

    def resume(self, word: str) -> None:
        self.note("resume", word)
        self._holds = [one for one in self._holds if one.word != word]

    def allow_once(self, prediction_id: str) -> str:
        self.note("allow_once", prediction_id)
        self.lifted.add(prediction_id)
        return "digest"

    def levels(self) -> tuple[StopLevel, ...]:
        pressed = any(one.word == "stop" for one in self._holds)
        return tuple(
            StopLevel(name, name == "key" and pressed, "pressed" if name == "key" and pressed else words, lift)
            for name, words, lift in LEVELS
        )

    def rails(self) -> tuple[RailState, ...]:
        said = {one.rail: one for one in self.log(1)[0].verdicts}
        held = next((one for one in self._holds), None)

        def one(rail: str, verdict: Verdict, brief: str, reason: str, until: datetime | None = None, stopped: int = 0):
            return RailState(rail, verdict, brief, reason, until, said[rail], ago(minutes=4), stopped)

        kill = (Verdict.BLOCK, held.word, held.reason) if held else (Verdict.ALLOW, "open", "not stopped")
        return (
            one("rate", Verdict.BLOCK, "waits", "the last trigger was at 14:08:30 UTC", ago(minutes=-6)),
            one("loop", Verdict.ALLOW, "2 links", "2 links of the last 10 min are counted; 3 loops were stopped so far",
                stopped=1),
            one("cost", Verdict.ALLOW, "$1.85", "$0.05 of $18.80 left today"),
            one("content", Verdict.ALLOW, "on", "reads every prompt, every edit and every command of a session",
                stopped=1),
            one("gate", Verdict.ASK, "asks you", "autonomousModeEnabled is off; the workspace's autonomy is not `act`",
                stopped=4),
            one("kill", *kill),
        )  # fmt: skip

    def chain(self, limit: int = 20) -> list[ChainStep]:
        return [
            ChainStep("koji-core", "research", "pred_000000000021", SHOP, ago(minutes=2), 3, 1, ago(minutes=-3)),
            ChainStep("chronicle-hub", "koji-core", "pred_000000000020", SHOP, ago(minutes=4), 2, 2, ago(minutes=-1)),
            ChainStep("owner", "chronicle-hub", "pred_000000000012", SHOP, ago(minutes=22), 1, 0),
            ChainStep("owner", "koji-core", "pred_000000000011", BLOG, ago(hours=3), 1, 0),
        ][:limit]

    def log(self, limit: int = 50, blocked_only: bool = False) -> list[Any]:
        block = RailVerdict("content", Verdict.BLOCK, "deletes outside the workspace: rm -rf /", "destructive.rm")
        loops = RailVerdict("loop", Verdict.BLOCK, "koji-core → research → koji-core within 5 min", "reverse link")
        gate = RailVerdict("gate", Verdict.ASK, "confidence 0.71 is below 0.80; quiet hours", "below-threshold,quiet")

        def entry(id: int, minutes: float, prompt: str, *no: RailVerdict, **more: Any) -> Any:
            values = {
                "trigger_type": "manual",
                "channel": "koji-core",
                "from_channel": "owner",
                "workspace": SHOP,
            } | more
            card = f"pred_{id:012}"
            return SimpleNamespace(
                id=id, at=ago(minutes=minutes), prompt=prompt, verdicts=allow(*no), blocked=bool(no), reason="",
                prediction_id=card, lifted=card in self.lifted, **values,
            )  # fmt: skip

        entries = [
            entry(1, 4, "Hunt flakes: 4 slowest tests"),
            entry(2, 33, "clean up with rm -rf / [/not markup]", block),
            entry(3, 90, "follow up on the analysis", loops, trigger_type="follow-up", from_channel="research"),
            entry(4, 400, "Draft the change log of the 5 commits since v1.2", gate, trigger_type="autonomous",
                  channel="chronicle-hub", workspace=BLOG),
        ]  # fmt: skip
        return [one for one in entries if one.blocked or not blocked_only][:limit]


def burns() -> tuple[Burn, ...]:
    hour = (0, 0, 10_000, 0, 0, 0, 50_000, 0, 0, 0, 20_000, 20_000)
    day = (*[0] * 8, 90_000, 150_000, 310_000, 0, 200_000, 350_000, 100_000, *[0] * 9)
    return (
        Burn("hour", ago(hours=1), NOW, 100_000, 50_000, 2_000_000, hour, 12, 160_000),
        Burn("day", ago(hours=14.2), ago(hours=-9.8), 1_150_000, 50_000, 20_000_000, day, 15, 216_000),
        Burn("month", ago(days=4.6), ago(days=-26.4), 8_950_000, 50_000, 200_000_000,
             (1_000_000, 2_500_000, 0, 4_300_000, 1_150_000, *[0] * 26), 5, 374_000, ago(days=-21)),
    )  # fmt: skip


class Settings(Port):
    fault = ""

    def __init__(self, engine: StandIn) -> None:
        super().__init__(engine)
        self.current = SimpleNamespace(
            keys={},
            console=SimpleNamespace(theme="clawpy-dark", mouse=True, bell=True),
            silence_threshold_ms=1_800_000,
            cross_poll_enabled=True,
            autonomous_mode_enabled=False,
            twin_model_enabled=False,
            dpo_export_enabled=False,
            quiet_hours_start=23,
            quiet_hours_end=8,
            workspaces={BLOG: SimpleNamespace(autonomy="act")},
            workspace=lambda path: self.current.workspaces.get(path, SimpleNamespace(autonomy="cards")),
        )

    def set(self, key: str, value: Any) -> None:
        self.note("set", key, value)


class StandIn:
    """The attributes of an `Engine` that the console uses."""

    def __init__(self) -> None:
        self.noted: list[tuple[Any, ...]] = []
        self.refuse: dict[str, Refusal] = {}
        self.now = NOW
        self.dnd: datetime | None = None
        self.bus = EventBus()
        self.workspaces = [SHOP, BLOG]
        self.cards = Cards(self)
        self.sessions = Sessions(self)
        self.changes = Changes(self)
        self.permissions = Permissions(self)
        self.calls = Calls(self)
        self.hiring = Hiring(self)
        self.files = Files(self)
        self.memory: Any = Remembering(self)
        self.layers = self.memory.layers
        self.recalling = Recalling(self)
        self.clock = SimpleNamespace(now=lambda: self.now)
        self.ledger = SimpleNamespace(latest=ledger)
        self.safety = Safety(self)
        self.settings = Settings(self)
        self.tasks = SimpleNamespace(list=lambda **_: tasks())
        self.hierarchy = SimpleNamespace(list=agents)
        self.autonomy = SimpleNamespace(
            state=lambda: SimpleNamespace(
                state="WATCHING", cause="the console opened", since=ago(minutes=40), next_change=ago(minutes=-18)
            ),
            next_cycle=lambda: ago(minutes=-17.5),
            earning=lambda workspaces: earning(
                autonomous=False,
                autonomies=["cards", "act"],
                quiet=False,
                phase=1,
                decisions=34,
                records=[Record("run_tests", "koji-core", 8, 8)],
                threshold=0.8,
            ),
            silence=lambda: timedelta(minutes=12),
            heard=lambda what: self.noted.append(("heard", what)),
            quiet=lambda: self.dnd is not None,
            dnd_until=lambda: self.dnd,
            dnd=self._dnd,
        )
        self.predictions = SimpleNamespace(
            run_cycle=self._run_cycle,
            phase=lambda: SimpleNamespace(number=1, decisions=34, reason="34 decisions, calibration not proven yet"),
        )

    def _run_cycle(self, *, workspaces: list[str] | None = None, requested: bool = False) -> Any:
        self.noted.append(("run_cycle", requested))
        return CycleReport(seconds=0.2)

    def _dnd(self, span: timedelta | None) -> datetime | None:
        self.noted.append(("dnd", span))
        self.dnd = None if span is None else self.now + span
        return self.dnd

    def since(self, instant: datetime) -> Since:
        ran = tuple(one for one in self.sessions.list() if one.ended_at is not None and one.ended_at > instant)
        return Since(instant, ran, (), 3, 1, 1, 20_000, tuple(self.queue()))

    def with_agent(self) -> StandIn:
        """With a running session of an agent that has made two calls and asks for two permissions."""
        self.sessions.all.insert(0, agent_session())
        self.sessions.transcripts[AGENT] = [
            TranscriptLine(number, NOW, kind, text) for number, (kind, text) in enumerate(AGENT_TRANSCRIPT, 1)
        ]
        self.calls.all[AGENT] = model_calls()
        self.permissions.all = permissions()
        return self

    def queue(self) -> list[Waiting]:
        waiting = [one for one in self.changes.all if one.state is ChangeState.WAITING]
        asked = [
            Waiting("permission", one.id, f"{one.agent} asks: {one.title}", one.asked_at, one.session_id)
            for one in self.permissions.all
        ]
        return asked + [
            Waiting("change_set", one.id, f"land {len(one.files)} files?", one.created_at, one.session_id)
            for one in waiting
        ]

    def place(self, workspace: str) -> str:
        return f"{workspace.rpartition('/')[2]}  main*"

    def close(self) -> None:
        time.sleep(0)
