"""Settings that a test may change, in memory or as the file of a home."""

from dataclasses import dataclass
from typing import Any

from engine.config.settings import Settings
from engine.home import Home


@dataclass
class MutableSettings:
    """Settings that a test may change, or exchange by setting `current`."""

    current: Settings

    def change(self, **values: Any):
        self.current = self.current.model_copy(update=values)


def write_settings(home: Home, text: str):
    """Write the configuration file of a home."""
    home.config.mkdir(parents=True, exist_ok=True)
    home.config_file.write_text(text)
