"""Settings: the schema, loading the layers, and saving. Imports nothing heavier than msgspec."""

from crushpy.settings.layers import Loaded, load
from crushpy.settings.save import add_item, add_rule, remove_rule, save_choice, set_value, unset_value
from crushpy.settings.schema import Compaction, ModelSettings, ProviderSettings, Settings

__all__ = [
    "Compaction",
    "Loaded",
    "ModelSettings",
    "ProviderSettings",
    "Settings",
    "add_item",
    "add_rule",
    "load",
    "remove_rule",
    "save_choice",
    "set_value",
    "unset_value",
]
