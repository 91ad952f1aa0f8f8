"""The cache on disk, for all tests of this folder."""

import pytest
from support.states.disk_cache import Disk


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path)
    yield made
    made.cache.reader.close()
