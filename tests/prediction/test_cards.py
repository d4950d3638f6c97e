"""Cards: own prompts and suggestions, decisions, undo and snoozes (SPEC 2.7, 2.9, 8.1)."""

from datetime import timedelta

import pytest

from engine.clock import FakeClock
from engine.config.settings import Settings, WorkspaceAutonomy, WorkspaceSettings
from engine.model import Outcome, Refusal, RunnerInfo, SessionView, Source, Status, Tier
from engine.storage.database import Database
from tests.prediction.deciding import SHOP, DecisionWorld, find_refusal_code, make_proposal
from tests.support import read_table

TABLE = read_table(__file__)

MOMENT = timedelta(microseconds=1)


# Prompts


def test_a_prompt_that_is_nearly_a_flow_asks_whether_that_was_meant(world: DecisionWorld):
    assert world.propose("run_tets paths=src").note.startswith("Did you mean the flow `run_tests`?")


def test_a_text_that_nothing_can_run_is_no_card_unless_it_may_wait(world: DecisionWorld):
    assert find_refusal_code(world.propose, "run_tets paths=src", may_wait=False) == "no_model"
    assert world.cards.list_recent() == []
    world.sessions.text_executor = "openai:gpt-6"
    assert world.propose("explain the cart", may_wait=False).note == ""


def test_an_own_prompt_may_name_a_flow_and_lies_on_top(world: DecisionWorld):
    card = world.propose("  Run tests\x1b[31m  ")
    assert (card.assignment.prompt, card.assignment.flow, card.kind) == ("Run tests", "run_tests", "own")
    card = world.propose("run_tests paths=src")
    assert (card.assignment.flow, card.assignment.parameters) == ("run_tests", {"paths": "src"})
    assert world.propose("run_tests of the cart").assignment.flow is None
    offered = world.make_card("src/cart.py")
    assert world.propose("Run  the tests of src/cart.py.").id == offered.id, "its title returns the pending card"
    world.make_card("urgent", tier=Tier.AT_RISK)
    assert world.cards.list_pending()[0].source is Source.OPERATOR
    assert find_refusal_code(world.propose, " \n") == "empty_prompt"
    assert find_refusal_code(world.propose, "x", channel="gardn") == "unknown_channel"


def test_no_key_gets_into_a_prompt(world: DecisionWorld):
    key = "sk-test-0123456789abcdefghijklmnop"
    assert find_refusal_code(world.propose, f"call the API with {key}") == "secret_in_text"
    card = world.propose("call the API with $OPENAI_API_KEY")
    assert find_refusal_code(world.cards.approve, card.id, edit=f"with {key}") == "secret_in_text"
    assert world.cards.get(card.id).assignment.prompt == "call the API with $OPENAI_API_KEY"


def test_a_prompt_continues_a_session_that_is_over(world: DecisionWorld):
    first = world.start_card()
    assert find_refusal_code(world.propose, "and now the till", continues="session_1") == "still_running"
    world.sessions.end(first.id)
    card = world.cards.propose("and now the till", workspace="", continues="session_1")
    work = card.assignment
    assert (work.workspace, work.channel, work.parameters) == ("/shop", "koji-core", {"continues": "session_1"})
    assert card.reasoning == f"continues “{first.assignment.prompt}”"


def test_approvals_of_own_prompts_count_for_no_prediction(world: DecisionWorld):
    for _ in range(11):
        world.cards.approve(world.propose("run_tests").id)
    assert world.cards.count_similar(world.make_card().id) == (0, 0)
    assert [past.waited_hours for past in world.decisions.load_after(0)] == [None] * 11


# Suggestions


def test_at_most_three_of_the_five_places_are_for_suggestions(world: DecisionWorld):
    tiers = [Tier.UPKEEP, Tier.CHECK, Tier.CHECK, Tier.BLOCKS, Tier.AT_RISK]
    world.check(*(make_proposal(f"p{n}", tier=tier, kind=f"k{n}") for n, tier in enumerate(tiers)))
    suggested = [world.suggest(f"part {number}") for number in range(3)]
    predicted = [card.tier for card in world.cards.list_pending() if card not in suggested]
    assert predicted == [Tier.AT_RISK, Tier.BLOCKS], "the lowest make room"
    assert find_refusal_code(world.suggest, "one more") == "too_many_cards"
    world.cards.dismiss(suggested[0].id)
    assert world.suggest("one more").source is Source.PREDICTOR_HOOK
    world.propose("an own prompt")
    assert len(world.cards.list_pending()) == 6, "an own prompt takes no place"


def test_a_workspace_that_is_off_gets_no_suggestion(database: Database, clock: FakeClock):
    world = DecisionWorld(
        database, clock, Settings(workspaces={SHOP: WorkspaceSettings(autonomy=WorkspaceAutonomy.OFF)})
    )
    assert find_refusal_code(world.suggest, "tidy the cart") == "autonomy_off"
    assert world.propose("tidy the cart").status is Status.PENDING


# Undo


def test_undo_before_the_session_began(world: DecisionWorld):
    world.sessions.is_full = True
    card = world.start_card()
    after, _ = world.cards.undo(card.id)
    assert (after.status, after.session_id) == (Status.PENDING, None)
    assert world.rails.revoked == [card.id]
    assert world.read_signals() == []


def test_undo_while_it_runs_cancels_it_and_gives_the_card_back(world: DecisionWorld):
    card = world.start_card()
    after, _ = world.cards.undo(card.id)
    assert (after.status, after.outcome) == (Status.EXECUTED, Outcome.CANCELLED)
    assert world.read_signals() == ["undone"]
    (again,) = world.cards.list_pending()
    assert (again.assignment, again.note) == (card.assignment, "undone while it ran")


def test_undo_later_reverses_the_landing(world: DecisionWorld):
    card = world.finish_card()
    world.landings_left["session_1"] = 1
    undone, landings_left = world.cards.undo(card.id)
    assert (undone.status, undone.note, landings_left) == (Status.EXECUTED, "1 landing undone, 1 left", 1)
    assert world.read_signals() == ["approved"]
    world.landings_left["session_1"] = 0
    undone, landings_left = world.cards.undo(card.id)
    assert (undone.status, undone.note, landings_left) == (Status.EXECUTED, "", 0)
    assert world.read_signals() == ["undone"]


@pytest.mark.parametrize(
    "flow, check_only, words",
    TABLE["nothing_to_undo"],
)
def test_undo_says_what_there_is_where_nothing_was_landed(
    world: DecisionWorld, flow: str, check_only: bool, words: str
):
    info = RunnerInfo(available=True, check_only=check_only, undo_note="land it again")
    world.sessions.check = lambda assignment: info
    card = world.cards.approve(world.make_card(flow=flow).id)
    world.sessions.end(card.id)
    with pytest.raises(Refusal) as refused:
        world.cards.undo(card.id)
    assert str(refused.value) == f"“{card.assignment.prompt}” {words.format(card.id)}"


def test_undo_at_the_moment_at_which_the_session_ends_reverses_its_landing(
    world: DecisionWorld, monkeypatch: pytest.MonkeyPatch
):
    card = world.start_card()
    running = world.sessions.views[card.id]

    def end_meanwhile(prediction_id: str) -> SessionView:
        world.sessions.end(prediction_id)
        world.landings_left["session_1"] = 0
        return running

    monkeypatch.setattr(world.sessions, "find_of_card", end_meanwhile)
    assert world.cards.undo(card.id)[0].status is Status.EXECUTED
    assert world.read_signals() == ["undone"]


def test_a_dismissal_is_not_undone_beside_a_pending_card_about_the_same(world: DecisionWorld):
    card = world.make_card()
    world.cards.dismiss(card.id)
    assert world.cards.undo(card.id)[0].status is Status.PENDING
    world.cards.dismiss(card.id)
    world.cards.unmute(world.cards.list_mutes()[0].id)
    world.make_card()
    assert find_refusal_code(world.cards.undo, card.id) == "nothing_to_undo"


# Snoozes


def test_a_snoozed_card_sleeps_two_hours_and_does_not_expire(world: DecisionWorld, clock: FakeClock):
    card = world.make_card()
    clock.advance(timedelta(hours=23))
    until = world.cards.snooze(card.id).snoozed_until
    assert until == clock.now() + timedelta(hours=2)
    clock.advance(timedelta(hours=2) - MOMENT)
    assert world.store.expire_due() == 0
    assert world.cards.list_pending() == []
    assert [card.id for card in world.cards.list_pending(include_snoozed=True)] == [card.id]
    clock.advance(MOMENT)
    assert [card.id for card in world.cards.list_pending()] == [card.id]
    world.cards.snooze(card.id)
    world.cards.undo(card.id)
    assert [card.id for card in world.cards.list_pending()] == [card.id]
    assert world.read_signals() == []


@pytest.mark.parametrize("span", [timedelta(0), timedelta(seconds=-1), timedelta(days=30) + MOMENT])
def test_a_snooze_has_bounds(world: DecisionWorld, span: timedelta):
    assert find_refusal_code(world.cards.snooze, world.make_card().id, span=span) == "bad_span"
