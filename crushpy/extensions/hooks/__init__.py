"""Hooks: commands that the user, a plugin or a trusted project attaches to events. See docs/hooks.md."""
