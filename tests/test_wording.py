"""Names and reasons in words."""

from engine.wording import describe_first, join_names, join_shortened


def test_names_and_reasons_are_joined_in_words():
    assert [describe_first(["a"] * number) for number in range(3)] == ["", "a", "a, and for 1 other reason"]
    assert join_names([]) == ""
    assert join_names(["a"]) == "a"
    assert join_names(["a", "b", "c"]) == "a, b and c"
    assert join_names(["a", "b", "c"], 2) == "a, b and 1 more"
    assert join_names(["evil\x1b[31m\nname"]) == "evil name"
    assert join_shortened(["a", "src/shop/cart.py"], 2, 8) == "a and …cart.py"
