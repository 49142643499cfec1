import pytest

from tests.torch_host import build


@pytest.fixture(scope="session")
def native():
    """src/host/torch as a module."""
    pytest.importorskip("torch")
    return build.load()
