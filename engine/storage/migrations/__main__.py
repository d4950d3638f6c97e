"""`python -m engine.storage.migrations`: write down anew what a database is that has all migrations."""

from __future__ import annotations

import tempfile
from pathlib import Path

from engine.storage import migrations

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "new.db")
        migrations._upgrade(path)
        migrations.SCRIPT.write_text(migrations.written_down(path), encoding="utf-8")
