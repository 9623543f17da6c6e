"""The settings in force while crushpy runs, and saving what the user chooses in the app."""

import msgspec

from crushpy.core.access import Privileges
from crushpy.core.paths import Paths
from crushpy.settings import Settings, add_item, add_rule, save_choice


class UserSettings:
    """Shared by all parts of a conversation: a change applies from the next request on."""

    def __init__(self, settings: Settings, paths: Paths) -> None:
        self.current = settings
        self._paths = paths

    def replace(self, **changes: object) -> None:
        """Changes settings for this process only."""
        self.current = msgspec.structs.replace(self.current, **changes)

    def save_choice(self, key: str, value: str) -> None:
        """Saves what the user chose in the app."""
        save_choice(self._paths, key, value)

    def allow_rule(self, rule: str) -> None:
        """Saves a permission rule."""
        add_rule(self._paths, "allow", rule)

    def allow_privileges(self, needs: Privileges) -> None:
        """Saves the hosts and folders that commands may use from now on."""
        for host in needs.hosts:
            add_item(self._paths, ("sandbox", "network"), host)
        for folder in needs.write:
            add_item(self._paths, ("sandbox", "write"), folder)
