"""Recall over layers (SPEC 4.4): matches of all layers become one list, and layers that fail are left out."""

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.memory import MAX_LEADING_FACTS, LayerResult, Recaller
from engine.memory.graph import TaskGraph
from engine.memory.layer_sources import GraphSource
from engine.model import GraphNode, Layer, RecallMatch, RecallQuery, Relation
from engine.storage.database import Database
from tests.memory.memory_services import NOW, make_match


class StandInSource:
    """A layer that finds these matches once it may answer; without any it fails."""

    def __init__(self, *matches: RecallMatch, layer: Layer = Layer.VECTORS):
        self.matches = matches
        self.layers = frozenset({layer})
        self.name = f"layer {layer.value}"
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.questions = 0

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        self.questions += 1
        self.may_answer.wait(30)
        if not self.matches:
            raise OSError("the disk is gone")
        return LayerResult(self.matches[: query.k])


def make_recaller(*sources: StandInSource) -> Recaller:
    return Recaller(sources, FakeClock(NOW))


def recall_ids(*matches: RecallMatch, **query: Any) -> list[str]:
    """The ids that are recalled from layers with these matches."""
    layers = dict.fromkeys(item.layer for item in matches)
    sources = [StandInSource(*(item for item in matches if item.layer is layer), layer=layer) for layer in layers]
    return [item.id for item in make_recaller(*sources).recall(RecallQuery("what", **query), 5.0).items]


FACTS = [make_match(f"fact_{number}", Layer.PARA, 0.1) for number in range(MAX_LEADING_FACTS + 1)]
"""One fact more than come before everything else."""

ONE_SESSION = [
    make_match("a"),
    make_match("b", Layer.LEDGER, 0.9, about="session_1"),
    make_match("e", Layer.CONTEXT, 0.4, about="session_1"),
    make_match("f", Layer.GRAPH, 0.8, about="session_1"),
]
"""Matches of three layers about one session, and another match."""


@pytest.mark.parametrize(
    "matches, query, ids",
    [
        ([make_match("a", score=0.8), make_match("b", score=0.9), *FACTS], {"k": 20},
         [*(f"fact_{number}" for number in range(MAX_LEADING_FACTS)), "b", "a", f"fact_{MAX_LEADING_FACTS}"]),
        ([make_match("a", score=0.9, text="Rounds  HALF up"), make_match("f", Layer.PARA, 0.2, "rounds half UP")],
         {}, ["f"]),
        ([make_match("a", score=0.9, text="yes"), make_match("b", text="Yes")], {}, ["a"]),
        ([make_match("a", score=0.9), make_match("f", Layer.PARA)], {"layers": frozenset({Layer.PARA})}, ["f"]),
        (ONE_SESSION, {}, ["a", "e"]),
        (ONE_SESSION, {"session": "session_1"}, ["a"]),
        ([make_match("a")], {"k": 0}, []),
    ],
    ids=["facts first, then by score", "the same in two layers", "the same twice in one layer", "one layer is asked",
         "a session once", "nothing of the session that asks", "none wanted"],
)  # fmt: skip
def test_matches_of_all_layers_become_one_list(matches: list[RecallMatch], query: dict[str, Any], ids: list[str]):
    assert recall_ids(*matches, **query) == ids == recall_ids(*reversed(matches), **query)


def test_a_broken_layer_is_left_out_and_named():
    recall = make_recaller(StandInSource(make_match("a")), StandInSource(layer=Layer.PARA)).recall(
        RecallQuery("what"), 5.0
    )
    assert [item.id for item in recall.items] == ["a"]
    assert recall.left_out == ("layer G: OSError: the disk is gone",)


def test_a_layer_that_hangs_is_left_out_and_not_asked_again_until_it_answers():
    slow = StandInSource(make_match("f", Layer.PARA), layer=Layer.PARA)
    slow.may_answer.clear()
    layers = make_recaller(StandInSource(make_match("a")), slow)
    recall = layers.recall(RecallQuery("what"), 0.2)
    assert [item.id for item in recall.items] == ["a"]
    assert recall.left_out == ("layer G: no answer within 0.2 s",)
    assert layers.recall(RecallQuery("what"), 0.2).left_out == ("layer G: still busy with an earlier question",)
    assert slow.questions == 1
    slow.may_answer.set()
    layers._late["layer G"].result(10)
    assert layers.recall(RecallQuery("what"), 5.0).left_out == ()


def test_the_graph_finds_similar_tasks_and_what_is_one_step_away(database: Database):
    graph = TaskGraph(database)
    graph.put(GraphNode("build", "Build it", NOW - timedelta(days=14), success=False))
    graph.put(GraphNode("deploy", "Deploy it", NOW, success=False))
    graph.put(GraphNode("old", "Old", NOW))
    graph.add_edge("build", Relation.BLOCKS, "deploy")
    graph.add_edge("old", Relation.RELATED_TO, "deploy")
    graph.put(GraphNode("old", "Old", NOW, invalidated_at=NOW, why="wrong"))
    source = GraphSource(graph, lambda text, k: {"deploy": 0.8})
    deploy, build = source.find(RecallQuery("why did the deployment fail"), NOW, 1.0).items
    assert deploy.id == "deploy"
    assert build.id == "build"
    assert deploy.score == pytest.approx(0.7 * 0.8 + 0.3)
    assert "its failure blocked “Deploy it”" in build.reason
    assert source.find(RecallQuery("why", workspace="/home/me/other"), NOW, 1.0).items == ()
