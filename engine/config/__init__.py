"""The settings of a home (SPEC 7.6).

`settings` is their model, whose `sections` stand by themselves. `settings_file` reads it from the file and the
environment, and says what a key accepts. They may import engine.model, text and frozen.
"""

from __future__ import annotations

from engine.config.sections import GatewaySettings
from engine.config.settings import (
    AdaptationMode,
    AdaptationSettings,
    ChannelSettings,
    FixedSettings,
    MemorySettings,
    ProductionSettings,
    Settings,
    SettingsSource,
    ValidationSettings,
    WorkspaceAutonomy,
    WorkspaceSettings,
    resolve_workspace_path,
)

__all__ = [
    "AdaptationMode",
    "AdaptationSettings",
    "ChannelSettings",
    "FixedSettings",
    "GatewaySettings",
    "MemorySettings",
    "ProductionSettings",
    "Settings",
    "SettingsSource",
    "ValidationSettings",
    "WorkspaceAutonomy",
    "WorkspaceSettings",
    "resolve_workspace_path",
]
