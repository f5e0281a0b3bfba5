from __future__ import annotations

import pytest

from syncline.fabric import Fabric, load
from syncline.planning.cost.owning import Owning, own


@pytest.fixture(scope="session")
def rail() -> Fabric:
    return load("h100-64-rail")


@pytest.fixture(scope="session")
def owned(rail: Fabric) -> Owning:
    return own(rail)
