"""What the app needs of the terminal beyond Textual: keys, pastes, the clipboard, the window's title."""
