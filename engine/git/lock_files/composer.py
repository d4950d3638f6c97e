"""Compares the lock file of Composer with its manifest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from engine.git.lock_files.pair import LockPair

_COMPOSER_KEYS = (
    "name", "version", "require", "require-dev", "conflict", "replace", "provide", "minimum-stability",
    "prefer-stable", "repositories", "extra",
)  # fmt: skip


def compare_composer(pair: LockPair) -> Iterator[str]:
    manifest, lock = json.loads(pair.manifest, parse_float=_refuse), json.loads(pair.lock)
    stored_hash = lock.get("content-hash")
    if not stored_hash:
        return
    content = {key: manifest[key] for key in _COMPOSER_KEYS if key in manifest}
    if "platform" in manifest.get("config", {}):
        content["config"] = {"platform": manifest["config"]["platform"]}
    ordered = _as_php({key: content[key] for key in sorted(content)})
    text = json.dumps(ordered, separators=(",", ":")).replace("/", "\\/")
    if hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() == stored_hash:
        return
    packages = [*lock.get("packages", []), *lock.get("packages-dev", [])]
    locked = {
        name.lower()
        for package in packages
        for name in (package["name"], *(package.get("replace") or {}), *(package.get("provide") or {}))
    }
    is_named = False
    for section in ("require", "require-dev"):
        for name, constraint in (manifest.get(section) or {}).items():
            if "/" in name and name.lower() not in locked:
                is_named = True
                yield pair.missing(name, constraint)
    if not is_named:
        yield pair.changed()


def _refuse(number: str) -> float:
    """PHP writes fractions in its own way, so that no hash of them can be compared."""
    raise ValueError(number)


def _as_php(value: Any) -> Any:
    """A value as PHP writes it after reading: an empty object, and one with the keys 0, 1, 2, is a list to it."""
    if isinstance(value, dict):
        items = {key: _as_php(item) for key, item in value.items()}
        return list(items.values()) if list(items) == [str(index) for index in range(len(items))] else items
    return [_as_php(item) for item in value] if isinstance(value, list) else value
