"""A running engine with its peers in this process."""

from collections.abc import AsyncIterator

import pytest

from doubles.cluster import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    await cluster.engine.start()
    await cluster.ready()
    yield cluster
    await cluster.engine.close()
