"""The memory of the stand-in engine: entries of its seven layers."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from engine.model import (
    AgentFile,
    Bucket,
    Capture,
    FactDraft,
    ForgetMatch,
    ForgetPreview,
    ForgetReport,
    GraphEdge,
    GraphNode,
    Injection,
    Layer,
    LayerState,
    Memory,
    Neighbourhood,
    ParaFact,
    PromptLine,
    PromptPart,
    PromptRequest,
    PromptSource,
    Recall,
    RecallMatch,
    RecallQuery,
    Refusal,
    Relation,
    Retention,
    ScorePart,
    SourceKind,
)
from tests.console.stand_in_service import StandInService

if TYPE_CHECKING:
    from datetime import datetime

SHOP = "/home/ada/src/shop"
AGENTS = PurePosixPath("/home/ada/.local/share/clawpy/agents")

SOUL = """# Builder

Builds small, tests first. Says what is not known, and asks before anything
leaves this machine or cannot be undone.
"""


def files() -> dict[tuple[str, str], str]:
    return {
        ("backend_builder", "soul.md"): SOUL,
        ("backend_builder", "memory.md"): "# Memory\n\n## 4 January\n- Totals are rounded once, at the end.\n",
        ("backend_builder", "heartbeat.md"): "# Heartbeat\n\n- [ ] every monday 09:00 run the whole suite\n",
        ("backend_builder", "comms.json"): '{\n  "reports_to": "backend_lead",\n  "title": "Backend builder"\n}\n',
        ("backend_builder", "tools.json"): '{\n  "allow": ["read", "write"]\n}\n',
        ("gardener", "soul.md"): "# Gardener\n\nKeeps what is known in order.\n",
        ("gardener", "comms.json"): '{"reports_to": }\n',
    }


class Files(StandInService):
    def fill(self) -> None:
        self.folder = AGENTS
        self.all = files()

    def _file(self, agent: str, name: str) -> AgentFile:
        text = self.all[agent, name]
        problem = "line 1, column 16: a value is expected here" if '"reports_to": }' in text else ""
        return AgentFile(agent, name, text, str(hash(text)), self._engine.now - timedelta(hours=3), problem)

    def files(self) -> list[AgentFile]:
        return [self._file(*place) for place in self.all]

    def read(self, agent: str, name: str) -> AgentFile:
        return self._file(agent, name)

    def write(self, agent: str, name: str, text: str, *, read: str) -> AgentFile:
        if self._file(agent, name).digest != read:
            raise Refusal("changed_meanwhile", f"{agent}/{name} was changed by another program", "look at both")
        self.note("wrote", agent, name)
        self.all[agent, name] = text
        return self._file(agent, name)


def memories(now: datetime) -> list[Memory]:
    def memory(number: int, layer: Layer, kind: str, text: str, hours: float, **more: Any) -> Memory:
        at = now - timedelta(hours=hours)
        values: dict[str, Any] = {"session": "sess_000000000003", "agent": "backend_builder", "workspace": SHOP} | more
        return Memory(
            f"mem_{number:016}", layer, text, kind, at, values.pop("retention", Retention.FOREVER), at,
            seq=1000 - number, **values,
        )  # fmt: skip

    return [
        memory(
            1,
            Layer.VECTORS,
            "decision",
            "We take Decimal for money, never float; the tax authority counts cents.",
            2,
            speaker="ada",
            tags=("money", "decimal"),
            source="sess_000000000003:14",
        ),
        memory(
            2, Layer.VECTORS, "correction", "Totals are rounded once, at the end, not per line.", 3, speaker="builder"
        ),
        memory(
            3,
            Layer.VECTORS,
            "turn",
            "Can you look at why test_total is red since v1.4? [/not markup] 🎉 漢字",
            26,
            speaker="ada",
            retention=Retention.MONTH,
        ),
        memory(4, Layer.VECTORS, "fact", "Totals are rounded per line.", 50, superseded_by=f"mem_{2:016}"),
        memory(5, Layer.VECTORS, "turn", "", 70, forgotten=True, retention=Retention.MONTH),
        memory(
            6, Layer.CONTEXT, "summary", "Rounded cart totals to whole cents with Decimal; 3 files; tests green.", 5
        ),
        memory(7, Layer.CONTEXT, "summary", "Hunted flakes in test_tax: a date that was fixed to 2025.", 30),
    ]


def captures(now: datetime) -> list[Capture]:
    return [
        Capture("cap_1", "decision", "I take Decimal, since floats lose cents.", ("decimal",),
                now - timedelta(hours=2), "sess_000000000003", 14, "backend_builder", SHOP, 2),
        Capture("cap_2", "correction", "No: the rounding is in price.py, not in cart.py.", ("price.py",),
                now - timedelta(hours=3), "sess_000000000003", 31, "backend_builder", SHOP, 1, "cap_1"),
    ]  # fmt: skip


def nodes(now: datetime) -> list[GraphNode]:
    return [
        GraphNode("sess_000000000002", "Format and fix the 3 files that lint complains of", now - timedelta(minutes=5),
                  True, "3 files changed, lint is clean", SHOP, "backend_builder"),
        GraphNode("sess_000000000003", "Run the tests of the 3 modules", now - timedelta(minutes=22), False,
                  "1 failed, 23 passed", SHOP, "backend_builder"),
        GraphNode("sess_000000000001", "Hunt flakes: 4 slowest tests, 20 times", now - timedelta(minutes=1), None, "",
                  SHOP, "backend_builder"),
        GraphNode("task_old", "Round per line", now - timedelta(days=40), True, "", SHOP, "", now, "it was a mistake"),
    ]  # fmt: skip


EDGES = (
    GraphEdge("sess_000000000003", Relation.BLOCKS, "sess_000000000002"),
    GraphEdge("sess_000000000001", Relation.DERIVED_FROM, "sess_000000000003"),
    GraphEdge("sess_000000000003", Relation.SIMILAR_TO, "task_old", 0.86, True),
)


def facts(now: datetime) -> list[ParaFact]:
    def fact_of(number: int, fact: str, days: float, **more: Any) -> ParaFact:
        values: dict[str, Any] = {"status": "active", "bucket": Bucket.PROJECTS, "group": "shop"} | more
        return ParaFact(
            f"fact_{number:04}", fact, "money", "sess_000000000003:14", created_at=now - timedelta(days=days), **values
        )

    return [
        fact_of(3, "Cart totals are Decimal, rounded once at the end.", 1, access_count=4,
            last_accessed=now - timedelta(hours=2)),
        fact_of(2, "Cart totals are rounded once, at the end.", 20, status="superseded", superseded_by="fact_0003"),
        fact_of(1, "Cart totals are rounded per line.", 60, status="superseded", superseded_by="fact_0002"),
        fact_of(4, "Ada reviews in the morning and wants small changes.", 12, bucket=Bucket.AREAS, group="work"),
    ]  # fmt: skip


def drafts(now: datetime) -> list[FactDraft]:
    return [
        FactDraft("draft_1", "2026-01-04", "The tax service runs on port 8443 in every environment.", "operations",
                  Bucket.RESOURCES, "services", "sess_000000000005:7", "stated in 3 sessions", SHOP,
                  now - timedelta(hours=9), supersedes="fact_0003"),
        FactDraft("draft_2", "2026-01-04", "test_tax is flaky before 1 February.", "tests", Bucket.PROJECTS, "shop",
                  "sess_000000000001:3", "a correction", SHOP, now - timedelta(hours=9)),
    ]  # fmt: skip


PARTS = (
    ScorePart("meaning", 0.82, 0.6), ScorePart("words", 0.55, 0.4), ScorePart("neighbours", 0.31, 0.4),
    ScorePart("recency", 0.94, 0.1),
)  # fmt: skip


class Remembering(StandInService):
    """The services `engine.memory` and `engine.knowledge`."""

    def fill(self) -> None:
        now = self._engine.now
        self.all = memories(now)
        self.building = 0.0
        self.captures = SimpleNamespace(entries=self._captures, entry=lambda id: self._find(captures(now), id))
        self.graph = SimpleNamespace(newest=self._nodes, get=self._node, neighbourhood=self._neighbourhood)
        self.facts = facts(now)
        self.para = SimpleNamespace(
            facts=lambda words="": [fact for fact in self.facts if words.lower() in fact.fact.lower()],
            get=lambda id: self._find(self.facts, id),
            corrections=self._chain,
        )
        self.forgetting = self
        self.waiting = drafts(now)
        self.drafts = SimpleNamespace(waiting=lambda: list(self.waiting), promote=self._promote, reject=self._reject)

    def _find(self, values: list[Any], id: str) -> Any:
        return next((value for value in values if value.id == id), None)

    def layers(self) -> list[LayerState]:
        now = self._engine.now
        vectors = LayerState(Layer.VECTORS, 12_480, now - timedelta(hours=2), "ready")
        if self.building:
            vectors = dataclasses.replace(
                vectors, state="building", words="the index is made again, words are searched", progress=self.building
            )
        return [
            LayerState(Layer.MARKDOWN, 7, now - timedelta(hours=3), "degraded", "gardener/comms.json is broken"),
            LayerState(Layer.LEDGER, 1_048_576, now - timedelta(minutes=1), "ready"),
            vectors,
            LayerState(Layer.CAPTURE, 2, now - timedelta(hours=2), "ready"),
            LayerState(Layer.CONTEXT, 2, now - timedelta(hours=5), "ready"),
            LayerState(Layer.GRAPH, 4, now - timedelta(minutes=1), "ready"),
            LayerState(Layer.PARA, 4, now - timedelta(days=1), "ready", "2 drafts wait for you"),
        ]

    def entries(self, layer: Layer, *, words: str = "", before: int | None = None, limit: int = 200) -> list[Memory]:
        self.note("entries", layer, words, before)
        memories = [item for item in self.all if item.layer is layer and (before is None or item.seq < before)]
        return [item for item in memories if all(word in item.text.lower() for word in words.lower().split())][:limit]

    def entry(self, layer: Layer, id: str) -> Memory | None:
        return next((item for item in self.all if item.id == id and item.layer is layer), None)

    def recall(self, query: RecallQuery) -> Recall:
        self.note("recall", query.text, query.layers)
        matches = [recalled(item, 0.9 - number / 10) for number, item in enumerate(self.all) if item.text]
        layers = query.layers or frozenset(Layer)
        return Recall(tuple(item for item in matches if item.layer in layers), ("graph: no answer within 0.2 s",))

    def _captures(self, *, words: str = "", before: str | None = None, limit: int = 200) -> list[Capture]:
        return [capture for capture in captures(self._engine.now) if words in capture.text] if before is None else []

    def _nodes(self, *, words: str = "", limit: int = 200) -> list[GraphNode]:
        return [node for node in nodes(self._engine.now) if words in node.title][:limit]

    def _node(self, id: str) -> GraphNode | None:
        return next((node for node in nodes(self._engine.now) if node.task_id == id), None)

    def _neighbourhood(self, id: str) -> Neighbourhood:
        edges = tuple(edge for edge in EDGES if id in (edge.source, edge.target))
        others = {edge.target if edge.source == id else edge.source for edge in edges}
        return Neighbourhood(self._node(id), edges, tuple(self._node(other) for other in sorted(others)))  # type: ignore[arg-type]

    def _chain(self, id: str) -> list[ParaFact]:
        chain = ["fact_0001", "fact_0002", "fact_0003"]
        return [self._find(self.facts, item) for item in (chain if id in chain else [id])]

    def _promote(self, id: str) -> ParaFact:
        self.note("promote", id)
        self.waiting = [item for item in self.waiting if item.id != id]
        return self.facts[0]

    def _reject(self, id: str) -> None:
        self.note("reject", id)
        self.waiting = [item for item in self.waiting if item.id != id]

    def preview(self, id: str) -> ForgetPreview:
        item = self.entry(Layer.VECTORS, id)
        text = item.text if item else id
        return ForgetPreview(
            (text,), (ForgetMatch("vectors", id, text), ForgetMatch("transcripts", "sess_3:14", text)),
            (("vectors", 1), ("transcripts", 2)), ("prompts that were sent already",),
        )  # fmt: skip

    def forget(self, texts: tuple[str, ...]) -> ForgetReport:
        self.note("forget", *texts)
        stub = {"text": "", "forgotten": True}
        self.all = [dataclasses.replace(item, **stub) if item.text in texts else item for item in self.all]
        return ForgetReport((("vectors", 1), ("transcripts", 2)))


def recalled(memory: Memory, score: float) -> RecallMatch:
    return RecallMatch(
        memory.id, memory.layer, memory.text, score, PARTS, "the same words: rounded, totals; 2 days old",
        memory.source,
        memory.speaker, memory.at, len(memory.text) // 4,
    )  # fmt: skip


class Recalling(StandInService):
    """The service `recall_part`."""

    def preview(self, request: PromptRequest) -> Injection:
        self.note("preview", request.task, request.workspace, request.agent)
        recall = self._engine.memory.recall(RecallQuery(request.task))
        runner = PromptSource(SourceKind.RUNNER, "", "clawpy")
        lines = [PromptLine("<recalled-memory>", runner), PromptLine("Remembered from earlier work.", runner)]
        for item in recall.items[:3]:
            source = PromptSource(SourceKind.MEMORY, item.id, f"{item.layer.value} {item.source or item.id}")
            line = f'<memory layer="{item.layer.value}" by="{item.speaker}">{item.text}</memory>'
            lines.append(PromptLine(line, source))
        lines.append(PromptLine("</recalled-memory>", runner))
        part = PromptPart("recalled-memory", tuple(lines), "system", 212)
        return Injection(part, recall.items[:3], recall.items[3:], recall.left_out, 212, 600, 0.043)
