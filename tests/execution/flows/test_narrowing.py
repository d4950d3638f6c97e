"""Which failures are one and the same."""

from __future__ import annotations

import pytest

from engine.execution.runners.flows.causes import Cause, cause_of, normal


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "tests/a.py:3: in test_a\n    f()\nsrc/b.py:7: in f\n    g()\n/x/site-packages/c.py:1: in g\n"
            "E   shop.errors.PriceError: 12 of /tmp/x/y at 0x7f12\n",
            Cause("PriceError", "N of /… at ADDRESS", "src/b.py:7"),
        ),
        ("E   assert 3 == 4\n", Cause("", "assert N == N", "")),
        (
            "TypeError: a.b is not a function\n    at f (node:internal/x:1:2)\n    at g (/repo/lib/a.js:3:5)\n"
            "    at h (/repo/test/a.js:9:1)",
            Cause("TypeError", "a.b is not a function", "lib/a.js:3"),
        ),
        (
            "thread 'x' panicked at src/lib.rs:5:9:\nassertion failed: 1 > 2\n",
            Cause("", "assertion failed: N > N", "src/lib.rs:5"),
        ),
        ("    cart_test.go:12: got 3, want 4\n", Cause("", "got N, want N", "cart_test.go:12")),
        ("", Cause("", "", "")),
    ],
)
def test_causes(text: str, expected: Cause) -> None:
    assert cause_of(text, "/repo") == expected


def test_messages_that_differ_by_chance_alone() -> None:
    assert normal("<A at 0x7f1> in /tmp/a/b took 3.5 s") == normal("<A at 0x9> in /tmp/c/d took 12 s")
    assert normal("utf8 of v2") == "utf8 of v2"
