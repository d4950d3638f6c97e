"""Parameters that the operator gives a flow are not learned as words of the operator (SPEC 5.1, 6.8)."""

from datetime import timedelta

from engine import Engine


def test_parameters_of_a_flow_are_not_learned(shop_engine: Engine):
    since = (shop_engine.clock.now() - timedelta(days=1)).isoformat()
    for _ in range(2):
        card = shop_engine.cards.propose("Summarise the day", workspace=shop_engine.workspaces[0])
        shop_engine.cards.approve(card.id, parameters={"since": since})
        shop_engine.sessions.wait(shop_engine.sessions.of_card(card.id).id, 60)
    shop_engine.learnings.catch_up()
    assert shop_engine.adaptation.run_round() == []
    assert not [record for record in shop_engine.adaptation.list_records() if "edited" in record.source_label]
    assert not [entry for entry in shop_engine.learnings.list_entries() if "Summarise" in entry.text]
