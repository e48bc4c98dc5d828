"""Fixtures for every kind of test."""

from pathlib import Path

import pytest

from octavo import catalog


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The default model's file, fetched once into the cache folder."""
    return catalog.locate(catalog.DEFAULT_MODEL)
