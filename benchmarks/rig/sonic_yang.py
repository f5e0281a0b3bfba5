"""SONiC files of `fabric build` before SONiC's own YANG models, by `yanglint` (Debian: libyang-tools).

The models are those of sonic-net/sonic-buildimage, `src/sonic-yang-models`: put the ones listed in MODELS into a folder
and name it in SYNCLINE_SONIC_YANG. What maps a row to a node is read from the models, as SONiC's own loader does it:
the table is the container of its name, `a|b` are the keys of the list with two keys, a list inside a list takes a row's
fields as its entries. A table, row or field that the models do not have is refused, and so is every broken file below.
What it does not show: that a switch loads it.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from syncline.fabric import load
from syncline.install.installation import install

YIN = "{urn:ietf:params:xml:ns:yang:yin:1}"
Tables = dict[str, dict[str, Any]]
_HOST = {"gpu": "H100", "gpus": 8, "nic": "ConnectX-7", "link": "400GbE"}
FABRICS: dict[str, dict[str, Any]] = {
    "two tiers, 4 uplinks each": {
        "hosts": 16, "host": _HOST | {"nics": 2},
        "network": {"topology": "leaf-spine", "link": "400GbE", "switch": "SN5600", "hosts_per_leaf": 4, "spines": 4},
    },
    "rails": {
        "hosts": 32, "host": _HOST | {"nics": 8},
        "network": {"topology": "rail-optimized", "link": "400GbE", "switch": "SN5600"},
    },
    "three tiers": {
        "hosts": 128, "host": _HOST | {"nics": 8},
        "network": {"topology": "fat-tree", "link": "400GbE", "switch": "7060DX5-64S"},
    },
    "rails that never meet": {
        "hosts": 16, "host": _HOST | {"nics": 8},
        "network": {"topology": "rail-only", "link": "400GbE", "switch": "SN5600"},
    },
    "two planes": {
        "hosts": 16, "host": _HOST | {"nics": 2, "link": "200GbE", "ports_per_nic": 2},
        "network": {"topology": "multi-plane", "planes": 2, "plane": {
            "topology": "leaf-spine", "link": "200GbE", "switch": "SN5600", "hosts_per_leaf": 8, "spines": 2,
        }},
    },
    "two rates and cages broken out": {
        "hosts": 8, "host": _HOST | {"nics": 1},
        "network": {"topology": "leaf-spine", "link": "400GbE", "uplink": "800GbE", "switch": "SN5600",
                    "hosts_per_leaf": 3, "spines": 1},
    },
    "a chassis with deep buffers": {
        "hosts": 16, "host": _HOST | {"nics": 8},
        "network": {"topology": "leaf-spine", "link": "400GbE", "switch": "7808R3", "hosts_per_leaf": 8},
    },
}  # fmt: skip
MODELS = (
    "device_metadata", "port", "interface", "loopback-interface", "device_neighbor", "cable-length", "hash",
    "dscp-tc-map", "tc-queue-map", "tc-priority-group-map", "pfc-priority-queue-map", "scheduler", "wred-profile",
    "queue", "port-qos-map", "pfcwd", "buffer-pool", "buffer-profile", "buffer-pg",
)  # fmt: skip


def _set(table: str, field: str, value: str, pick: Callable[[str], bool] = lambda _: True) -> Callable[[Tables], None]:
    def broken(tables: Tables) -> None:
        tables[table][next(key for key in tables[table] if pick(key))][field] = value

    return broken


def _row(table: str, key: str, row: dict[str, Any]) -> Callable[[Tables], None]:
    return lambda tables: tables[table].update({key: row})


def _drop(table: str, field: str) -> Callable[[Tables], None]:
    return lambda tables: tables[table][next(iter(tables[table]))].pop(field)


#: A file that holds one of these must be refused: what is wrong, and how to make it so.
BROKEN: dict[str, Callable[[Tables], None]] = {
    "a table that no model has": lambda tables: tables.update({"PORTS": {}}),
    "a field that the model does not have": _set("DEVICE_METADATA", "ecmp_hash_seed", "10"),
    "a mandatory field left out (lanes)": _drop("PORT", "lanes"),
    "a mandatory field left out (pool)": _drop("BUFFER_PROFILE", "pool"),
    "range: mtu 9300": _set("PORT", "mtu", "9300"),
    "range: speed 3200000": _set("PORT", "speed", "3200000"),
    "range: weight 0": _set("SCHEDULER", "weight", "0"),
    "range: dynamic_th 9": _set("BUFFER_PROFILE", "dynamic_th", "9"),
    "range: drop probability 101": _set("WRED_PROFILE", "green_drop_probability", "101"),
    "range: watchdog's detection 50 ms": _set("PFC_WD", "detection_time", "50", lambda key: key != "GLOBAL"),
    "enumeration: fec fire": _set("PORT", "fec", "fire"),
    "enumeration: type Leaf": _set("DEVICE_METADATA", "type", "Leaf"),
    "enumeration: ecn on": _set("WRED_PROFILE", "ecn", "on"),
    "enumeration: hash field QPN": _set("SWITCH_HASH", "ecmp_hash", "QPN"),
    "pattern: a cable of 3.5m": lambda tables: tables["CABLE_LENGTH"].update(
        AZURE=dict.fromkeys(tables["PORT"], "3.5m")
    ),
    "pattern: DSCP 64": lambda tables: tables["DSCP_TO_TC_MAP"]["AZURE"].update({"64": "0"}),
    "pattern: PFC on priority 8": _set("PORT_QOS_MAP", "pfc_enable", "8"),
    "pattern: an address without a length": _row("LOOPBACK_INTERFACE", "Loopback0|10.0.0.1", {}),
    "length: a host name of 64": _set("DEVICE_METADATA", "hostname", "x" * 64),
    "reference: a queue of a port that is not there": _row("QUEUE", "Ethernet9999|3", {}),
    "reference: a scheduler that is not there": _set("QUEUE", "scheduler", "scheduler.gone"),
    "reference: a marking profile that is not there": _set("QUEUE", "wred_profile", "ECN_1G"),
    "reference: a buffer profile that is not there": _set("BUFFER_PG", "profile", "gone"),
    "reference: a pool that is not there": _set("BUFFER_PROFILE", "pool", "gone"),
    "reference: a map that is not there": _set("PORT_QOS_MAP", "dscp_to_tc_map", "gone"),
    "must: watchdog slower to look than to find": _set("PFC_WD", "POLL_INTERVAL", "1000", lambda key: key == "GLOBAL"),
    "must: marks end before they begin": _set("WRED_PROFILE", "green_max_threshold", "1"),
    "must: an address on a port without its row": lambda tables: tables["INTERFACE"].pop(
        next(key for key in tables["INTERFACE"] if "|" in key).partition("|")[0]
    ),
}  # fmt: skip


class RefusedError(Exception):
    """A row of a file has no place in the models."""


@dataclass(frozen=True)
class Schema:
    """The models as yanglint reads them: which container is a table, and of which name space."""

    folder: Path
    tables: dict[str, tuple[str, str, ElementTree.Element]]
    """By table: module, name space, the container."""

    @property
    def files(self) -> list[str]:
        return [str(self.folder / f"sonic-{name}.yang") for name in MODELS]

    def refusals(self, tables: Tables) -> list[str]:
        """Return what is wrong with the tables; nothing where the models take them."""
        try:
            text = "".join(self._told(tables))
        except RefusedError as error:
            return [str(error)]
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write(text)
            file.flush()
            asked = [*_YANGLINT, "-p", str(self.folder), "-t", "config", *self.files, file.name]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
        return [] if done.returncode == 0 else [line for line in done.stderr.splitlines() if "err" in line] or ["?"]

    def _told(self, tables: Tables) -> Iterator[str]:
        for table, rows in tables.items():
            if table not in self.tables:
                raise RefusedError(f"no model has the table {table}")
            module, space, node = self.tables[table]
            inner = "".join(_told_row(node, table, key, row) for key, row in rows.items())
            yield f'<{module} xmlns="{space}"><{table}>{inner}</{table}></{module}>'


_YANGLINT = ("yanglint", "-Q", "-i")


def read_schema(folder: Path) -> Schema:
    """Return the tables of the models in a folder."""
    found = {}
    for name in MODELS:
        asked = ["yanglint", "-Q", "-f", "yin", "-p", str(folder), str(folder / f"sonic-{name}.yang")]
        told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        module = ElementTree.fromstring(told)  # noqa: S314 (printed by yanglint just now)
        uri = module.find(f"{YIN}namespace")
        for table in module.findall(f"{YIN}container/{YIN}container"):
            found[table.attrib["name"]] = (module.attrib["name"], "" if uri is None else uri.attrib["uri"], table)
    return Schema(folder, found)


def _told_row(node: ElementTree.Element, table: str, key: str, row: dict[str, Any]) -> str:
    alone = next((c for c in node.findall(f"{YIN}container") if c.attrib["name"] == key), None)
    if alone is not None:
        return f"<{key}>{_told_fields(alone, f'{table}|{key}', row)}</{key}>"
    parts = key.split("|")
    for rows in node.findall(f"{YIN}list"):
        keys = _keys(rows)
        if len(keys) != len(parts):
            continue
        name = rows.attrib["name"]
        named = "".join(f"<{k}>{escape(part)}</{k}>" for k, part in zip(keys, parts, strict=True))
        return f"<{name}>{named}{_told_fields(rows, f'{table}|{key}', row)}</{name}>"
    raise RefusedError(f"{table} has no list of {len(parts)} keys: {key}")


def _keys(rows: ElementTree.Element) -> list[str]:
    key = rows.find(f"{YIN}key")
    return [] if key is None else key.attrib["value"].split()


def _told_fields(node: ElementTree.Element, where: str, row: dict[str, Any]) -> str:
    inner = node.find(f"{YIN}list")
    if inner is not None:
        (key,) = _keys(inner)
        value = next(leaf.attrib["name"] for leaf in inner.findall(f"{YIN}leaf") if leaf.attrib["name"] != key)
        name = inner.attrib["name"]
        return "".join(
            f"<{name}><{key}>{escape(k)}</{key}><{value}>{escape(v)}</{value}></{name}>" for k, v in row.items()
        )
    have = {leaf.attrib["name"] for kind in ("leaf", "leaf-list") for leaf in node.findall(f"{YIN}{kind}")}
    strange = sorted(set(row) - have)
    if strange:
        raise RefusedError(f"{where}: the model has no {', '.join(strange)}")
    return "".join(
        f"<{field}>{escape(one)}</{field}>"
        for field, value in row.items()
        for one in (value if isinstance(value, list) else [value])
    )


def _break(schema: Schema, whole: Tables) -> tuple[dict[str, str], list[str]]:
    said, taken = {}, []
    for what, broken in BROKEN.items():
        tables = copy.deepcopy(whole)
        broken(tables)
        found = schema.refusals(tables)
        if found:
            said[what] = found[0][:160]
        else:
            taken.append(what)
    return said, taken


def _version(folder: Path, name: str) -> dict[str, str]:
    text = (folder / f"sonic-{name}.yang").read_bytes()
    dates = [
        line.split()[1].strip(b"{;").decode() for line in text.splitlines() if line.strip().startswith(b"revision ")
    ]
    return {"revision": max(dates), "sha256": hashlib.sha256(text).hexdigest()[:16]}


def _sources(folder: Path) -> Any:
    told = folder / "sources.json"
    return json.loads(told.read_text()) if told.exists() else "as downloaded"


def run() -> dict[str, Any]:
    """Return what the models refuse of our files, and that they refuse broken ones."""
    named = os.environ.get("SYNCLINE_SONIC_YANG")
    if not named:
        return {"missing": ["SYNCLINE_SONIC_YANG names no folder with SONiC's YANG models"]}
    if shutil.which("yanglint") is None:
        return {"missing": ["yanglint is not installed (Debian: apt install libyang-tools)"]}
    schema = read_schema(Path(named))
    counts: dict[str, int] = {}
    names: set[str] = set()
    refused: list[str] = []
    rows, whole = 0, None
    for name, cluster in FABRICS.items():
        found = install(load(cluster), system="sonic")
        files = {path: json.loads(text) for path, text in found.files.items() if path.endswith("config_db.json")}
        counts[name] = len(files)
        names |= {table for one in files.values() for table in one}
        for path, tables in files.items():
            rows += sum(len(table) for table in tables.values())
            refused += [f"{name}, {path}: {line}" for line in schema.refusals(tables)]
        whole = whole or next(iter(files.values()))
    assert whole is not None
    said, taken = _break(schema, whole)
    version = subprocess.run(["yanglint", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return {
        "yanglint": version, "models_are": _sources(schema.folder),
        "models": {f"sonic-{name}": _version(schema.folder, name) for name in MODELS},
        "fabrics": counts, "switches": sum(counts.values()), "rows": rows, "tables": sorted(names),
        "refused": refused[:20], "refused_count": len(refused),
        "broken": len(BROKEN), "broken_refused": len(said), "broken_taken": taken, "broken_said": said,
        "not_shown": "that a switch loads the file: no SONiC was run",
    }  # fmt: skip
