"""The cause that the output of a test names, and which failures have the same cause."""

from __future__ import annotations

import pytest

from engine.execution.runners.flows.failure_causes import Cause, cause_of


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
def test_the_cause_is_read_from_the_output(text: str, expected: Cause) -> None:
    assert cause_of(text, "/repo") == expected


@pytest.mark.parametrize(
    ("cause", "signature"),
    [
        (Cause("KeyError", "'a'", "src/cart.py:7"), "KeyError: 'a' in src/cart.py"),
        (Cause("", "assert N == N", "tests/test_cart.py:3"), "failed: assert N == N in tests/test_cart.py::test_a"),
        (Cause("KeyError", "'a'", ""), ""),  # where it came from is not told
        (Cause("", "", "src/cart.py:7"), ""),
    ],
)
def test_the_signature_is_the_error_with_its_file_or_with_the_test_of_an_assertion(
    cause: Cause, signature: str
) -> None:
    assert cause.signature_of("tests/test_cart.py::test_a") == signature


def test_failures_that_differ_by_chance_and_by_line_have_one_signature() -> None:
    def text(line: int, price: int) -> str:
        return (
            f"tests/t.py:3: in test_a\n    f()\nsrc/b.py:{line}: in f\n    g()\nE   ValueError: {price} is too much\n"
        )

    assert len({cause_of(text(line, 3 * line), "/repo").signature_of("tests/t.py::test_a") for line in (7, 12)}) == 1
