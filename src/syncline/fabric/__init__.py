"""WHAT the hardware is: hosts, GPUs, NICs, switches, links, routes, and what they cost."""

from __future__ import annotations

from syncline.fabric.build import build
from syncline.fabric.fabric import DeviceKind, Devices, Fabric, Links, Tier
from syncline.fabric.load import load, presets, save
from syncline.fabric.spec import ClusterSpec

__all__ = ["ClusterSpec", "DeviceKind", "Devices", "Fabric", "Links", "Tier", "build", "load", "presets", "save"]
