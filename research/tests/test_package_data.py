from __future__ import annotations

import json

from research.package_data import stored_runs

from syncline.validation.systems import shipped


def test_the_package_holds_the_fitted_runs_as_they_are_read_now() -> None:
    derived = json.loads(json.dumps(stored_runs()))
    assert json.loads(shipped("training-runs.json.gz")) == derived, "run: python -m research.package_data"
