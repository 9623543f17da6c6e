"""Builds conversations from settings and flags: the one place that connects all packages."""

from crushpy.bootstrap.host_additions import HostAdditions
from crushpy.bootstrap.opening import branch_to_open, load_images, open_conversation
from crushpy.bootstrap.project_environment import ProjectEnvironment

__all__ = ["HostAdditions", "ProjectEnvironment", "branch_to_open", "load_images", "open_conversation"]
