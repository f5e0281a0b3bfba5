"""The JSON schema of an answer, made from the types of its fields."""

from __future__ import annotations

from typing import Any

from syncline.describe.plain import JsonObject

SCHEMA_ID = "https://syncline.dev/schemas/{name}-{version}.json"


def strict_schema(found: Any, name: str, version: int) -> JsonObject:
    """Return pydantic's schema with a version and `$id`: every key is there, and no other is allowed."""
    found = _strict(found)
    # The command adds the files it wrote.
    found["properties"]["written"] = {"type": "array", "items": {"type": "string"}}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID.format(name=name, version=version),
        "title": f"syncline {name}",
        "version": version,
    }
    return {**head, **found}


def _strict(part: Any) -> Any:
    """Return a schema whose objects have all of their keys and no others, without titles that repeat the keys."""
    if isinstance(part, list):
        return [_strict(each) for each in part]
    if not isinstance(part, dict):
        return part
    made = {key: _strict(value) for key, value in part.items() if key not in ("title", "default", "readOnly")}
    if isinstance(part.get("properties"), dict) and part.get("type") == "object":
        made["properties"] = {key: _strict(value) for key, value in part["properties"].items()}
        made["required"] = list(part["properties"])
        made["additionalProperties"] = False
    if "$defs" in part:
        made["$defs"] = {key: _strict(value) for key, value in part["$defs"].items()}
    return made
