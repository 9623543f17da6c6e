"""May it? Rules, reading shell commands, and which projects are trusted. Knows no tool and runs nothing."""
