"""The parts of the door of storage: what can be asked of it, subject by subject."""
