"""Programs as files: the schedules in their factors, the devices by name, the codecs by their price.

A file is input like any other: reading it proves its schedules again before a program is made of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncline.codec.codec import Codec
from syncline.errors import FileError, ProgramError, SynclineError
from syncline.fabric import Fabric
from syncline.program.placement import Placement, given
from syncline.program.program import Program, ProgramStep, VendorStep
from syncline.schedule import verify
from syncline.schedule.formats.json_file import from_json, to_json

FORMAT = "syncline program 1"
MAX_FILE_BYTES = 1 << 30


def save(program: Program, path: Path) -> None:
    """Write a program; `load` reads it back on the same fabric."""
    fabric = program.placement.fabric
    value = {
        "format": FORMAT,
        "name": program.name,
        "placement": program.placement.name,
        "devices": [fabric.device_name(int(device)) for device in program.placement.device],
        "helpers": [fabric.device_name(int(device)) for device in program.placement.helpers],
        "steps": [_step_out(step) for step in program.steps],
    }
    try:
        path.write_text(json.dumps(value, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror}.") from None


def load(path: Path, fabric: Fabric) -> Program:
    """Return the program of a file, its schedules proved anew, its devices found in `fabric` by name."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise FileError(f"{path} is larger than {MAX_FILE_BYTES:,} bytes.")
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise FileError(f"{path} is not JSON text.") from None
    try:
        return _program_in(value, fabric)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        hint = "Write it with syncline.program.files.save."
        raise ProgramError(f"{path.name} is not a program: {error}.", hint=hint) from None
    except SynclineError as error:
        where = f"{path.name}, {error.where}" if error.where else path.name
        raise type(error)(error.message, where=where, detail=error.detail, hint=error.hint) from None


def _program_in(value: Any, fabric: Fabric) -> Program:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ProgramError(f'a program file says "format": "{FORMAT}".')
    placed = given(fabric, [str(name) for name in value["devices"]])
    helpers = given_any(fabric, value["helpers"])
    placement = Placement(fabric, placed.device, str(value["placement"]), helpers.helpers)
    return Program(str(value["name"]), tuple(_step_in(step) for step in value["steps"]), placement)


def given_any(fabric: Fabric, names: list[str]) -> Placement:
    """Return a placement of helpers only: they may live on any device."""
    return Placement(fabric, fabric.gpus[:0], "helpers", [fabric.device(str(name)) for name in names])  # type: ignore[arg-type]


def _step_out(step: ProgramStep | VendorStep) -> dict[str, object]:
    if isinstance(step, VendorStep):
        return {"library": step.library, "collective": step.collective.to_json()}
    codec = step.codec
    price = {"name": codec.name, "wire_ratio": codec.wire_ratio, "summable": codec.summable}
    rates = {"encode_Bps": codec.encode_Bps, "decode_Bps": codec.decode_Bps}
    finite = {name: rate for name, rate in rates.items() if math.isfinite(rate)}
    plain = {"plain_stages": sorted(step.plain_stages)} if step.plain_stages else {}
    return {"schedule": to_json(step.proved.schedule), "codec": price | finite, **plain}


def _step_in(value: Mapping[str, Any]) -> ProgramStep | VendorStep:
    if "library" in value:
        from syncline.schedule import Collective

        goal = dict(value["collective"])
        return VendorStep(Collective(**goal | {"sizes": tuple(goal.get("sizes", ()))}), str(value["library"]))
    price = dict(value["codec"])
    codec = Codec(
        str(price["name"]),
        float(price["wire_ratio"]),
        float(price.get("encode_Bps", math.inf)),
        float(price.get("decode_Bps", math.inf)),
        bool(price["summable"]),
    )
    return ProgramStep(verify(from_json(value["schedule"])), codec, frozenset(map(int, value.get("plain_stages", ()))))
