"""Settings: the schema, loading the layers, and saving. Imports nothing heavier than msgspec."""
