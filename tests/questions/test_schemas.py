"""Answers keep the schemas that the documentation shows."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest

from syncline.describe.plain import plain

ROOT = Path(__file__).resolve().parents[2]


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("schemas", ROOT / "tools" / "schemas.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCHEMAS = tool()


@pytest.mark.parametrize("name", sorted(SCHEMAS.questions()))
def test_answers_keep_their_schema(name: str) -> None:
    schema = json.loads((SCHEMAS.FOLDER / f"{name}.json").read_text())
    for ask in SCHEMAS.questions()[name]:
        jsonschema.validate(plain(ask().to_json()), schema)


def test_a_schema_refuses_what_no_answer_has() -> None:
    schema = SCHEMAS.schema_of([{"a": 1, "b": None}, {"a": 2.5}])
    assert schema["required"] == ["a"]
    jsonschema.validate({"a": 3}, schema)
    for wrong in ({"b": None}, {"a": "x"}, {"a": 1, "c": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
