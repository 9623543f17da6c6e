"""The checks of `crushpy doctor`."""
