from __future__ import annotations

import json
import pickle

import pytest

from syncline import errors
from syncline.errors import FabricError, NotProvedError, ScheduleError, SynclineError

FULL = FabricError(
    'leaf switch "leaf-07" has 33 ports in use but "QM9700" has 32.',
    where="cluster.yaml line 41",
    detail="Links over the limit: leaf-07 -> spine-03.",
    hint="Drop a link, or pick a larger switch.",
)


def every_error() -> list[type[SynclineError]]:
    return [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, SynclineError)]


def test_the_text_names_the_place_the_rule_and_the_next_step() -> None:
    assert str(FULL) == (
        'cluster.yaml line 41: leaf switch "leaf-07" has 33 ports in use but "QM9700" has 32.\n'
        "  Links over the limit: leaf-07 -> spine-03.\n"
        "  Drop a link, or pick a larger switch."
    )


def test_parts_that_are_not_given_leave_no_trace() -> None:
    assert str(FabricError("zero hosts.")) == "zero hosts."
    assert str(FabricError("zero hosts.", hint="Ask for at least 1.")) == "zero hosts.\n  Ask for at least 1."


def test_json_has_the_same_keys_for_every_error() -> None:
    assert json.loads(json.dumps(FULL.to_json())) == {
        "error": "FabricError",
        "message": FULL.message,
        "where": FULL.where,
        "detail": FULL.detail,
        "hint": FULL.hint,
    }
    assert FabricError("x").to_json().keys() == FULL.to_json().keys()


@pytest.mark.parametrize("kind", every_error())
def test_every_error_is_a_documented_syncline_error_that_crosses_processes(kind: type[SynclineError]) -> None:
    assert kind.__doc__
    assert kind.__name__.endswith("Error")
    error = kind("what.", where="here", detail="why", hint="next")
    copy = pickle.loads(pickle.dumps(error))  # worker processes hand errors back this way
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert copy.to_json() == error.to_json()


def test_an_unproved_schedule_is_a_schedule_error() -> None:
    assert issubclass(NotProvedError, ScheduleError)
