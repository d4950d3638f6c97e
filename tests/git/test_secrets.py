"""Which lines and files look as if they held a secret, and which do not."""

from __future__ import annotations

import pytest

from engine.git.leftovers import scan_line
from engine.git.secrets import is_secret_file, secret_kind
from tests.git.test_unpushed import TOKEN


@pytest.mark.parametrize(
    ("path", "line", "kind"),
    [
        # put together here so that no scanner takes this file for a leak
        ("config.py", "AK" + "IA" + "Q7W2E9R4T1Y8U3I6", "AWS access key"),
        ("config.py", "-----BEGIN RSA " + "PRIVATE KEY-----", "private key"),
        ("config.py", "xo" + "xb-123456789012-abcdef", "Slack token"),
        ("config.py", "postgres://app:" + "s3cr3tpw@db.internal/x", "password in a URL"),
        ("config.py", "api_key = " + "'q8Zr2Lk9Xw4Tn7Bv'", "value that looks like a key"),
        ("deploy.yml", "  password: k9Zr2-Lk9Xw4Tn7B", "value that looks like a key"),
        (".env.production", "aws_secret_access_key=" + "q8Zr2Lk9Xw4Tn7Bv+/" * 2 + "a1b2", "AWS secret key"),
        ("docs/config.rst", f"TOKEN = '{TOKEN}'", "GitHub token"),
        ("docs/config.rst", "SECRET_KEY = '192b9bdd22ab9ed4d12e236c78afcb9a'", ""),
        ("t/unit/__init__.py", f"TOKEN = '{TOKEN}'", ""),
        ("k8s.yml", "  secretName: shop-tls-2024-prod-1", ""),
        ("ci.yml", "  token: ${{ secrets.DEPLOY_TOKEN_1 }}", ""),
        ("compose.yml", "url: postgres://shop:s3cr3tpw@db/shop", ""),
        ("config.py", "password = 'changeme1234'", ""),
        ("config.py", "token = os.environ['TOKEN']", ""),
        ("config.py", "api_key: '${API_KEY_FROM_VAULT}'", ""),
        ("config.py", "secret = 'aaaaaaaaaaaaaaaa1'", ""),
        ("config.py", "url = 'https://user:{password}@host'", ""),
        ("config.py", "PASSWORD_FIELD = 'password_confirmation'", ""),
        ("config.py", "if '-----BEGIN RSA PRIVATE KEY-----' in text:", ""),
        ("config.py", "url = 'postgres://postgres:postgres1@localhost/shop'", ""),
        ("config.py", "key = 'AKIAIOSFODNN7EXAMPLE'", ""),
        ("yarn.lock", 'token@^1: "q8Zr2Lk9Xw4Tn7Bvq8Zr2Lk9"', ""),
        ("login.py", "secret = hash(token + password)", ""),
        ("config.py", "class = 'sk-estimator-doc-link-with-a-very-long-name-indeed'", ""),
    ],
)
def test_lines_that_hold_a_secret_and_lines_that_only_look_like_it(path: str, line: str, kind: str) -> None:
    after = "MIIEowIBAAKCAQEA" * 4 if kind else ""
    assert secret_kind(path, line, after) == kind
    assert [hit.kind for hit in scan_line(path, line, after) if hit.is_secret] == (
        [f"likely secret: {kind}"] if kind else []
    )


@pytest.mark.parametrize(
    ("name", "holds_keys"),
    [(".env", True), ("a/id_rsa", True), ("b.pfx", True), (".env.example", False), ("id_rsa.pub", False)],
)
def test_names_of_files_that_hold_keys(name: str, holds_keys: bool) -> None:
    assert is_secret_file(name) is holds_keys
