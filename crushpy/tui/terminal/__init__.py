"""Access to the terminal beyond Textual: early keys, the background colour, the clipboard."""
