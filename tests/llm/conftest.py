"""Fixtures of the provider tests."""

from providers_under_test import under

__all__ = ["under"]
