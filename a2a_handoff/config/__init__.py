"""Settings: what they mean (``settings``) and where they come from (``sources``)."""

from a2a_handoff.config.settings import Settings
from a2a_handoff.config.sources import ConfigurationError, SettingsError, read, settings_table

__all__ = ["ConfigurationError", "Settings", "SettingsError", "read", "settings_table"]
