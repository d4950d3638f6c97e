"""The settings of a home: the model, the file and the environment that it is read from, and the names of its keys."""

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
