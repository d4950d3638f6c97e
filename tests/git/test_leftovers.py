"""Lines and files that should not be pushed: leftovers and likely secrets."""

from __future__ import annotations

import pytest

from engine.git.leftovers import scan_line
from engine.git.secrets import is_secret_file


@pytest.mark.parametrize(
    ("path", "line", "kinds"),
    [
        ("a.txt", "<<<<<<< HEAD", ["conflict marker"]),
        ("a.txt", ">>>>>>> feature/x", ["conflict marker"]),
        ("a.rst", "=======", []),
        ("a.txt", "<<<<<<<< eight", []),
        ("shop/a.py", "    print(x)", ["debug print"]),
        ("shop/a.py", "    pprint(x)", []),
        ("shop/a.py", "    print(x, file=sys.stderr)", []),
        ("shop/cli.py", "    print(x)", []),
        ("scripts/a.py", "print(x)", []),
        ("tests/test_a.py", "print(x)", []),
        ("tests/test_a.py", "    breakpoint()", ["breakpoint"]),
        ("a.py", "import pdb; pdb.set_trace()", ["breakpoint"]),
        ("a.ts", "  console.log(x)", ["console.log"]),
        ("a.ts", "  console.error(x)", []),
        ("a.js", "  debugger;", ["debugger statement"]),
        ("a.test.js", "describe.only('x', () => {", [".only"]),
        ("a.rs", "    dbg!(x);", ["dbg!"]),
        ("a.go", "// TODO: fix", ["TODO"]),
        ("a.py", "x = 1  # FIXME later", ["FIXME"]),
        ("a.py", "todo = 'TODO'", []),
    ],
)
def test_lines_that_should_not_be_pushed(path: str, line: str, kinds: list[str]) -> None:
    assert [hit.kind for hit in scan_line(path, line)] == kinds


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        (("AK", "IA", "Q7W2E9R4T1Y8U3I6"), "AWS access key"),
        (("-----BEGIN RSA ", "PRIVATE KEY-----"), "private key"),
        (("xo", "xb-123456789012-abcdef"), "Slack token"),
        (("postgres://app:", "s3cr3tpw@db.internal/x"), "password in a URL"),
        (("api_key = ", "'q8Zr2Lk9Xw4Tn7Bv'"), "value that looks like a key"),
    ],
)
def test_likely_secrets(parts: tuple[str, ...], kind: str) -> None:
    [found] = scan_line("config.py", "".join(parts), "MIIEowIBAAKCAQEA" * 4)
    assert found.kind == f"likely secret: {kind}"
    assert found.is_secret


@pytest.mark.parametrize(
    "line",
    [
        "password = 'changeme1234'",
        "token = os.environ['TOKEN']",
        "api_key: '${API_KEY_FROM_VAULT}'",
        "secret = 'aaaaaaaaaaaaaaaa1'",
        "url = 'https://user:{password}@host'",
        "PASSWORD_FIELD = 'password_confirmation'",
        "if '-----BEGIN RSA PRIVATE KEY-----' in text:",
        "url = 'postgres://postgres:postgres1@localhost/shop'",
        "url = 'postgres://app:s3cr3tpw@db:5432/shop'",
        "key = 'AKIAIOSFODNN7EXAMPLE'",
        "secretName = 'shop-tls-2024-prod-1'",
        "class = 'sk-estimator-doc-link-with-a-very-long-name-indeed'",
    ],
)
def test_what_only_looks_like_a_secret(line: str) -> None:
    assert scan_line("config.py", line) == []


def test_names_of_files_that_hold_keys() -> None:
    assert [is_secret_file(name) for name in (".env", "a/id_rsa", "b.pfx", ".env.example", "id_rsa.pub")] == [
        True, True, True, False, False,
    ]  # fmt: skip
