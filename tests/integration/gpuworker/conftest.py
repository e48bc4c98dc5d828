"""Workers of small random models, whose packed weights nobody needs again."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def own_cache_folder(tmp_path_factory) -> Iterator[None]:
    """Else they would push the packed weights of real models out of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCTAVO_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
