"""The tree of agents (SPEC 1.4, 9.1): leaders and workers, folded agents, and chains that do not reach the owner."""

from hypothesis import given
from hypothesis import strategies as st

from clawpy_console.screens.agent_tree import MAX_UNFOLDED_AGENTS, FoldState, Node, make_tree_nodes
from engine.model import AgentActivity, AgentView


def make_agent(id: str, reports_to: str, *, worked: bool = True, tier: int = 4, broken: str = "") -> AgentView:
    activity = AgentActivity("broken" if broken else "idle", sessions=int(worked))
    return AgentView(id, "", reports_to, tier, "default", "", (), activity, broken)


def draw_tree(nodes: list[Node]) -> list[str]:
    return [
        f"{'  ' * node.depth}{node.id}" + (f": {node.text}" if node.text and node.id != "owner" else "")
        for node in nodes
    ]


def test_unused_agents_are_folded_from_nine_agents_on():
    agents = [
        make_agent("ceo", "owner", worked=False),
        *(make_agent(f"w{number}", "ceo", worked=number == 0) for number in range(MAX_UNFOLDED_AGENTS - 1)),
    ]
    assert (
        len(make_tree_nodes(agents, folds=FoldState())) == 1 + MAX_UNFOLDED_AGENTS
    )  # not so long that it needs folding
    agents.append(make_agent("junior", "w1", worked=False))
    assert draw_tree(make_tree_nodes(agents, folds=FoldState())) == [
        "owner", "  ceo", "    w0", "    +ceo: 7 not used yet: w1, junior, w2, w3, w4, w5, w6",
    ]  # fmt: skip
    unfolded = draw_tree(make_tree_nodes(agents, folds=FoldState(frozenset({"+ceo"}))))
    assert unfolded[3:6] == ["    w1", "      junior", "    w2"]
    assert len(make_tree_nodes(agents, folds=FoldState(show_all=True))) == 1 + len(agents)
    assert "    w3" in draw_tree(make_tree_nodes(agents, folds=FoldState().unfold_to(agents[4], ["ceo"])))


def test_a_filter_shows_matching_agents_below_folded_rows_and_their_leaders():
    agents = [
        make_agent("ceo", "owner"),
        make_agent("cto", "ceo"),
        make_agent("lead", "cto", tier=3),
        make_agent("coo", "ceo"),
    ]
    nodes = make_tree_nodes(agents, folds=FoldState(frozenset({"ceo"})), words=["tier", "3"])
    assert [(node.id, node.matches) for node in nodes if node.agent] == [("ceo", False), ("cto", False), ("lead", True)]


def test_agents_whose_chain_does_not_reach_the_owner_are_grouped_below_with_the_reason():
    agents = [
        make_agent("ceo", "owner"), make_agent("orphan", "ghost"), make_agent("child", "orphan"),
        make_agent("a", "b"), make_agent("b", "a"), make_agent("tail", "b"), make_agent("self", "self"),
        make_agent("torn", "", broken="comms.json: is missing"), make_agent("below_torn", "torn"),
        make_agent("bad_tools", "ceo", broken="tools.json: x"),
    ]  # fmt: skip
    assert draw_tree(make_tree_nodes(agents, folds=FoldState())) == [
        "owner",
        "  ceo",
        "    bad_tools",  # its place is known, only its tools are broken
        "=leader missing: leader missing (1)",
        "  orphan: reports to ghost, which does not exist",
        "    child",
        "=in a circle: in a circle (2)",
        "  a: reports to b, whom it leads: a circle",
        "    b",
        "      tail",
        "  self: reports to itself: a circle",
        "=broken: broken (1)",
        "  torn",
        "    below_torn",
    ]


NAMES = [f"n{number}" for number in range(12)]


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([*NAMES, "owner", "ghost", ""])), st.booleans())
def test_each_agent_is_drawn_once_whatever_its_leader(reports_to: dict[str, str], worked: bool):
    agents = [make_agent(name, leader, worked=worked) for name, leader in reports_to.items()]
    nodes = make_tree_nodes(agents, folds=FoldState(show_all=True))
    assert sorted(node.id for node in nodes if node.agent) == sorted(reports_to)


def test_a_chain_as_long_as_there_are_agents_is_drawn():
    agents = [make_agent("n0", "owner"), *(make_agent(f"n{number}", f"n{number - 1}") for number in range(1, 3000))]
    assert make_tree_nodes(agents, folds=FoldState())[-1].depth == 3000
