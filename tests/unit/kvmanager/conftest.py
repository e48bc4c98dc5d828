import pytest

from doubles.memory_rig import MemoryRig


@pytest.fixture
def rig() -> MemoryRig:
    """Block size 4, 8 device blocks, 8 host blocks."""
    return MemoryRig()
