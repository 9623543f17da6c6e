"""Builds conversations from settings and flags: the one place that connects all packages."""

from crushpy.bootstrap.opening import HostAdditions, branch_to_open, load_images, open_conversation
from crushpy.bootstrap.project_environment import ProjectEnvironment

__all__ = ["HostAdditions", "ProjectEnvironment", "branch_to_open", "load_images", "open_conversation"]
