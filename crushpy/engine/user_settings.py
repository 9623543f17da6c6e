"""The settings in force while crushpy runs, and saving what the user chooses in the app."""

from pathlib import Path

import msgspec

from crushpy.core.access import AnswerChoice
from crushpy.core.paths import Paths
from crushpy.permissions.rules import rules_for
from crushpy.settings.save import add_item, add_rule, save_choice
from crushpy.settings.schema import Settings


class UserSettings:
    """Shared by all parts of a conversation: a change applies from the next request on."""

    def __init__(self, settings: Settings, paths: Paths, project: Path) -> None:
        self.current = settings
        self._paths = paths
        self._project = project

    def replace(self, **changes: object) -> None:
        """Changes settings for this process only."""
        self.current = msgspec.structs.replace(self.current, **changes)

    def save_choice(self, key: str, value: str) -> None:
        save_choice(self._paths, key, value)

    def allow_rules(self, choice: AnswerChoice) -> None:
        """Saves what an answer allows: permission rules, and the hosts and folders that commands may use."""
        project = None if choice.all_projects else self._project
        for host in choice.needs.hosts:
            add_item(self._paths, ("sandbox", "network"), host, project)
        for folder in choice.needs.write:
            add_item(self._paths, ("sandbox", "write"), folder, project)
        for rule in choice.rules:
            if rule not in rules_for(choice.needs):
                add_rule(self._paths, "allow", rule, project)
