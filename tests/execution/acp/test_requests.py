"""The option that answers a request for permission."""

from __future__ import annotations

from typing import Any

from acp import schema
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.runners.acp.requests import choose_option


def option(kind: Any) -> schema.PermissionOption:
    return schema.PermissionOption(option_id=f"id-{kind}", name=str(kind), kind=kind)


KINDS = st.lists(st.sampled_from(["allow_once", "allow_always", "reject_once", "reject_always"]), max_size=6)


@given(KINDS, st.booleans())
def test_the_chosen_option_never_allows_more_than_was_decided(kinds: list[str], allowed: bool) -> None:
    chosen = choose_option([option(kind) for kind in kinds], allowed)
    if allowed:
        assert chosen == ("id-allow_once" if "allow_once" in kinds else None)
    else:
        assert chosen is None or chosen.startswith("id-reject")
        assert (chosen is None) == (not any(kind.startswith("reject") for kind in kinds))
