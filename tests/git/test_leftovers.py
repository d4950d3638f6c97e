"""Which lines look like secrets."""

from __future__ import annotations

import pytest

from engine.git.leftovers import secret_kind
from tests.git.test_unpushed import TOKEN


@pytest.mark.parametrize(
    ("path", "line", "kind"),
    [
        ("deploy.yml", "  password: k9Zr2-Lk9Xw4Tn7B", "value that looks like a key"),
        ("k8s.yml", "  secretName: shop-tls-2024-prod-1", ""),
        ("ci.yml", "  token: ${{ secrets.DEPLOY_TOKEN_1 }}", ""),
        (".env.production", "aws_secret_access_key=" + "q8Zr2Lk9Xw4Tn7Bv+/" * 2 + "a1b2", "AWS secret key"),
        ("docs/config.rst", "SECRET_KEY = '192b9bdd22ab9ed4d12e236c78afcb9a'", ""),
        ("docs/config.rst", f"TOKEN = '{TOKEN}'", "GitHub token"),
        ("t/unit/__init__.py", f"TOKEN = '{TOKEN}'", ""),
        ("compose.yml", "url: postgres://shop:s3cr3tpw@db/shop", ""),
    ],
)
def test_secrets_and_what_only_looks_like_one(path: str, line: str, kind: str) -> None:
    assert secret_kind(path, line) == kind
