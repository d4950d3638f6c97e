"""Messages between engine and model host can always be sent, and show no key (SPEC 11.1)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.execution.runners.model import host_protocol
from engine.execution.runners.model.host_protocol import Model


def test_the_repr_of_a_model_has_no_key():
    assert "secret" not in repr(Model("openai", "m", "openai", "http://a", "sk-secret"))


@given(st.text(st.characters(categories=["Cs"]), min_size=1, max_size=4))
@settings(max_examples=10)
def test_half_characters_can_be_encoded(half: str):
    assert host_protocol.decode(host_protocol.encode({"text": half})).keys() == {"text"}
