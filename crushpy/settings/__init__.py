"""Settings: the schema, loading the layers, and saving. Imports nothing heavier than msgspec."""

from crushpy.settings.files import project_file
from crushpy.settings.layers import Loaded, RuleOrigin, load
from crushpy.settings.save import add_item, add_rule, remove_rule, save_choice, set_value, unset_value
from crushpy.settings.schema import (
    Compaction,
    Keys,
    ModelSettings,
    PermissionSettings,
    ProviderSettings,
    Settings,
    Tasks,
)

__all__ = [
    "Compaction",
    "Keys",
    "Loaded",
    "ModelSettings",
    "PermissionSettings",
    "ProviderSettings",
    "RuleOrigin",
    "Settings",
    "Tasks",
    "add_item",
    "add_rule",
    "load",
    "project_file",
    "remove_rule",
    "save_choice",
    "set_value",
    "unset_value",
]
