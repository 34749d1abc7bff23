"""Fixtures of the command line's tests."""

import pytest


@pytest.fixture
def task(finished):
    """A task of the finished run's panel dev."""
    return finished.manifest["panel_tasks"]["dev"][0]
