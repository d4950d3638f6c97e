"""The data of the stand-in engine: cards, sessions, changes and prompts of two repositories at one moment."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from engine.model import (
    COLD_START,
    AgentView,
    Assignment,
    Band,
    Burn,
    Card,
    ChangeSet,
    ChangeState,
    CheckResult,
    ConfidenceParts,
    DecidedBy,
    FileChange,
    ModelCall,
    Outcome,
    PermissionRequest,
    PromptLine,
    PromptPart,
    PromptSource,
    RailVerdict,
    SessionState,
    SessionView,
    Signal,
    Source,
    SourceKind,
    Status,
    Task,
    Tier,
    Verdict,
)

NOW = datetime(2026, 1, 5, 14, 12, 30, tzinfo=UTC)
SHOP, BLOG = "/home/ada/src/shop", "/home/ada/src/blog"

RAILS = ("loop", "rate", "cost", "content", "gate", "kill")


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def allow(*exceptions: RailVerdict) -> tuple[RailVerdict, ...]:
    """Every rail allows, except those in `exceptions`."""
    by_rail = {verdict.rail: verdict for verdict in exceptions}
    return tuple(by_rail.get(rail, RailVerdict(rail, Verdict.ALLOW, "")) for rail in RAILS)


def signals(git: str, *, tasks: str = "", relevance: float = 0.9) -> tuple[Signal, ...]:
    return (
        Signal("time", 0.3, 0.5, ("afternoon: deep work",)),
        Signal("silence", 0.2, 0.4, ("12 minutes since you last did anything",)),
        Signal("tasks", 0.2, 0.3 if tasks else 0.0, (tasks,) if tasks else ()),
        Signal("conversations", 0.15, 0.0),
        Signal("git", 0.1, relevance, (git,)),
        Signal("calendar", 0.05, 0.0, (), "no calendar is configured"),
    )


def card(number: int, prompt: str, **more: Any) -> Card:
    flow = more.pop("flow", "run_tests")
    parameters = more.pop("parameters", {})
    workspace, channel = more.pop("workspace", SHOP), more.pop("channel", "koji-core")
    confidence = more.pop("confidence", 0.5)
    words = more.pop("words", ("31 decisions", "6 of 7 like it", "", ""))
    bands = ((0.8, Band.ACT), (0.6, Band.SUGGESTED), (0.0, Band.CARD))
    values: dict[str, Any] = {
        "kind": flow or "prose",
        "tier": Tier.CHECK,
        "agent": "backend_builder",
        "band": next(band for limit, band in bands if confidence >= limit),
        "parts": ConfidenceParts(0.71, 0.62, 0.80, 0.55, confidence, words, stated=True),
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


def cards(*, stated: bool = True) -> list[Card]:
    """The stack from the top. `stated`: the Twin has learnt, so that a confidence is stated."""
    sure = "moved up to “blocks soon”: you approved 19 of 19 like it"
    stack = [
        card(
            1,
            "HEAD is red since 11:02: bisect test_cart between v1.4 and HEAD",
            tier=Tier.BROKEN,
            flow="bisect",
            confidence=0.66,
            parameters={"test": "tests/test_cart.py::test_total", "good": "a1b2c3d", "bad": "9f8e7d6"},
            novel=True,
        ),
        card(
            2,
            "Run the tests of the 3 modules changed since the last run",
            tier=Tier.BLOCKS if stated else Tier.CHECK,
            confidence=0.72,
            words=("31 decisions", "6 of 7 like it", "", "", sure),
            signals=signals("3 files changed since 11:02", tasks='"cart rounding" is 4 days old'),
            parameters={"paths": ["shop/cart.py", "shop/price.py", "shop/tax.py"]},
        ),
        card(
            3,
            "Rehearse merging main into feature/checkout and say which files conflict",
            tier=Tier.BLOCKS,
            flow="rehearse_merge",
            confidence=0.58,
            parameters={"source": "main", "target": "feature/checkout"},
            verdicts=allow(
                RailVerdict("gate", Verdict.ASK, "touches production: branch main; first days", "production,onboarding")
            ),
        ),
        card(5, "Does HEAD pass without your 2 uncommitted files?", flow="check_clean_head", confidence=0.41),
        card(
            4,
            "Draft the change log of the 5 commits since v1.2",
            tier=Tier.UPKEEP,
            flow="draft_changelog",
            channel="chronicle-hub",
            workspace=BLOG,
            confidence=0.47,
            check_only=False,
            undo_note="landing can be undone while no landed file changed",
            parameters={"since": "v1.2", "until": "HEAD"},
        ),
    ]
    return stack if stated else [_unstated(item) for item in sorted(stack, key=lambda item: item.tier)]


def _unstated(card: Card) -> Card:
    """The same card before the Twin has learnt."""
    assert card.parts is not None
    parts = replace(card.parts, total=COLD_START, stated=False)
    return replace(card, confidence=COLD_START, band=Band.CARD, parts=parts)


def recent() -> list[Card]:
    past = [
        (11, "Rerun the 4 slowest tests 20 times for flakiness", Status.EXECUTED, Outcome.SUCCEEDED, 22),
        (12, "Lint the 6 files changed today", Status.EXECUTED, Outcome.FAILED, 41),
        (13, "Report merged and stale branches", Status.DISMISSED, None, 75),
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
    def request(number: int, tool: str, title: str, detail: str, reason: str, seconds: float) -> PermissionRequest:
        return PermissionRequest(
            f"perm_{number:012}", AGENT, "backend_builder", SHOP, tool, title, detail, reason, ago(seconds=seconds)
        )

    return [
        request(1, "exec", "run `git push origin main`", "git push origin main", "it leaves this machine", 80),
        request(
            2, "write", "write deploy.yml", "@@ -1,2 +1,3 @@\n on: push\n+  branches: [main]\n-old", "CI is ask", 20
        ),
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
    def task(
        number: int, title: str, state: str, minutes: float, session_id: str | None = None, note: str = ""
    ) -> Task:
        return Task(
            f"task_{number}", title, state, "koji-core", SHOP, "session", ago(minutes=minutes), ago(minutes=minutes),
            session_id, note,
        )  # fmt: skip

    return [
        task(1, "Hunt flakes: 4 slowest tests", "running", 0.25, "sess_000000000001"),
        task(2, "cart rounding", "open", 5760),
        task(3, "Format and fix 3 files", "done", 4, "sess_000000000002"),
        task(4, "Run the tests of the 3 modules", "done", 21, "sess_000000000003"),
        task(5, "Lint the 6 files", "failed", 41, "sess_000000000004", "ruff is not found"),
    ]


def agents() -> list[AgentView]:
    def agent(id: str, tier: int, reports_to: str, channels: tuple[str, ...] = (), tokens: int = 0) -> AgentView:
        return AgentView(id, id.replace("_", " "), reports_to, tier, "name", "", channels, "idle", tokens)

    return [
        agent("backend_builder", 4, "backend_lead", ("koji-core",), 3210),
        agent("chronicler", 4, "coo", ("chronicle-hub",), 1130),
        agent("dreamer", 4, "cino", ("dream-weaver",)),
        agent("researcher", 4, "cro", ("research",), 5400),
        agent("gardener", 4, "coo", ("garden",)),
        agent("ceo", 1, "owner"),
        agent("cto", 2, "ceo"),
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
    return [row for row in rows if before is None or row.id < before][:limit]


def burns() -> tuple[Burn, ...]:
    hour = (0, 0, 10_000, 0, 0, 0, 50_000, 0, 0, 0, 20_000, 20_000)
    day = (*[0] * 8, 90_000, 150_000, 310_000, 0, 200_000, 350_000, 100_000, *[0] * 9)
    return (
        Burn("hour", ago(hours=1), NOW, 100_000, 50_000, 2_000_000, hour, 12, 160_000),
        Burn("day", ago(hours=14.2), ago(hours=-9.8), 1_150_000, 50_000, 20_000_000, day, 15, 216_000),
        Burn("month", ago(days=4.6), ago(days=-26.4), 8_950_000, 50_000, 200_000_000,
             (1_000_000, 2_500_000, 0, 4_300_000, 1_150_000, *[0] * 26), 5, 374_000, ago(days=-21)),
    )  # fmt: skip


def found_agent(name: str, title: str, missing: str = "") -> SimpleNamespace:
    return SimpleNamespace(name=name, title=title, missing=missing, hosts=("api.example.com",), login=f"run {name}")
