"""The memory of the stand-in engine: entries of its seven layers."""

import dataclasses
from datetime import timedelta
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

from engine.model import (
    AgentFile,
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
    ScorePart,
    SourceKind,
)
from tests.console.stand_in_data import TABLES, StandInService, read_values

AGENTS = PurePosixPath("/home/ada/.local/share/clawpy/agents")


class StandInAgentFiles(StandInService):
    """The service `agent_files`; a file with `"reports_to": }` has a problem."""

    def fill(self):
        self.folder = AGENTS
        self.all = {tuple(path.split("/")): text for path, text in TABLES["agent_files"].items()}

    def _file(self, agent: str, name: str) -> AgentFile:
        text = self.all[agent, name]
        problem = "line 1, column 16: a value is expected here" if '"reports_to": }' in text else ""
        return AgentFile(agent, name, text, str(hash(text)), self._engine.now - timedelta(hours=3), problem)

    def read_files(self) -> list[AgentFile]:
        return [self._file(*place) for place in self.all]

    def read(self, agent: str, name: str) -> AgentFile:
        return self._file(agent, name)

    def write(self, agent: str, name: str, text: str, *, based_on: str) -> AgentFile:
        if self._file(agent, name).digest != based_on:
            raise Refusal("changed_meanwhile", f"{agent}/{name} was changed by another program", "look at both")
        self.record_call("wrote", agent, name)
        self.all[agent, name] = text
        return self._file(agent, name)


class StandInMemory(StandInService):
    """The services `engine.memory` and `engine.knowledge`."""

    def fill(self):
        self.all = read_values(Memory, "memories")
        self.building = 0.0
        self.captures = SimpleNamespace(
            read_entries=self._captures, find_entry=lambda id: self._find(read_values(Capture, "captures"), id)
        )
        self.graph = SimpleNamespace(find_newest=self._nodes, get=self._node, get_neighbourhood=self._neighbourhood)
        self.facts = read_values(ParaFact, "facts")
        self.para = SimpleNamespace(
            read_facts=lambda words="": [fact for fact in self.facts if words.lower() in fact.fact.lower()],
            get=lambda id: self._find(self.facts, id),
            read_corrections=self._chain,
        )
        self.forgetting = self
        self.waiting = read_values(FactDraft, "drafts")
        self.drafts = SimpleNamespace(
            list_waiting=lambda: list(self.waiting), promote=self._promote, reject=self._reject
        )

    def _find(self, values: list[Any], id: str) -> Any:
        return next((value for value in values if value.id == id), None)

    def describe_layers(self) -> list[LayerState]:
        layers = read_values(LayerState, "layers")
        if self.building:
            building = {"state": "building", "words": "the index is made again, words are searched"}
            layers[2] = dataclasses.replace(layers[2], progress=self.building, **building)
        return layers

    def read_entries(
        self, layer: Layer, *, words: str = "", before: int | None = None, limit: int = 200
    ) -> list[Memory]:
        self.record_call("entries", layer, words, before)
        memories = [item for item in self.all if item.layer is layer and (before is None or item.seq < before)]
        return [item for item in memories if all(word in item.text.lower() for word in words.lower().split())][:limit]

    def find_entry(self, layer: Layer, id: str) -> Memory | None:
        return next((item for item in self.all if item.id == id and item.layer is layer), None)

    def recall(self, query: RecallQuery) -> Recall:
        self.record_call("recall", query.text, query.layers)
        matches = [make_match(item, 0.9 - number / 10) for number, item in enumerate(self.all) if item.text]
        layers = query.layers or frozenset(Layer)
        return Recall(tuple(item for item in matches if item.layer in layers), ("graph: no answer within 0.2 s",))

    def _captures(self, *, words: str = "", before: str | None = None, limit: int = 200) -> list[Capture]:
        return (
            [capture for capture in read_values(Capture, "captures") if words in capture.text] if before is None else []
        )

    def _nodes(self, *, words: str = "", limit: int = 200) -> list[GraphNode]:
        return [node for node in read_values(GraphNode, "graph_nodes") if words in node.title][:limit]

    def _node(self, id: str) -> GraphNode | None:
        return next((node for node in read_values(GraphNode, "graph_nodes") if node.task_id == id), None)

    def _neighbourhood(self, id: str) -> Neighbourhood:
        edges = tuple(edge for edge in read_values(GraphEdge, "graph_edges") if id in (edge.source, edge.target))
        others = {edge.target if edge.source == id else edge.source for edge in edges}
        return Neighbourhood(self._node(id), edges, tuple(self._node(other) for other in sorted(others)))

    def _chain(self, id: str) -> list[ParaFact]:
        chain = ["fact_0001", "fact_0002", "fact_0003"]
        return [self._find(self.facts, item) for item in (chain if id in chain else [id])]

    def _promote(self, id: str) -> ParaFact:
        self.record_call("promote", id)
        self.waiting = [item for item in self.waiting if item.id != id]
        return self.facts[0]

    def _reject(self, id: str):
        self.record_call("reject", id)
        self.waiting = [item for item in self.waiting if item.id != id]

    def preview(self, id: str) -> ForgetPreview:
        item = self.find_entry(Layer.VECTORS, id)
        text = item.text if item else id
        return ForgetPreview(
            (text,), (ForgetMatch("vectors", id, text), ForgetMatch("transcripts", "sess_3:14", text)),
            (("vectors", 1), ("transcripts", 2)), ("prompts that were sent already",),
        )  # fmt: skip

    def forget(self, texts: tuple[str, ...]) -> ForgetReport:
        self.record_call("forget", *texts)
        stub = {"text": "", "forgotten": True}
        self.all = [dataclasses.replace(item, **stub) if item.text in texts else item for item in self.all]
        return ForgetReport((("vectors", 1), ("transcripts", 2)))


def make_match(memory: Memory, score: float) -> RecallMatch:
    return RecallMatch(
        memory.id, memory.layer, memory.text, score, tuple(read_values(ScorePart, "score_parts")),
        "the same words: rounded, totals; 2 days old",
        memory.source,
        memory.speaker, memory.at, len(memory.text) // 4,
    )  # fmt: skip


class StandInRecallPart(StandInService):
    """The service `recall_part`."""

    def preview(self, request: PromptRequest) -> Injection:
        self.record_call("preview", request.task, request.workspace, request.agent)
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
