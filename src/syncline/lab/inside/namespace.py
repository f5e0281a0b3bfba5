"""Network namespaces without names, held open as files; settings written inside them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from syncline.lab.profile import Profile

OWN_NET = "/proc/thread-self/ns/net"
"""`thread-self`, not `self`: a namespace belongs to a thread."""


def current() -> int:
    """Return this thread's network namespace as an open file."""
    return os.open(OWN_NET, os.O_RDONLY | os.O_CLOEXEC)


def write_settings(settings: Mapping[str, object]) -> dict[str, str]:
    """Write settings under net/ of the current namespace; returns those that could not be written, with the reason."""
    failed = {}
    for name, value in settings.items():
        try:
            with open(f"/proc/sys/net/{name}", "w", encoding="ascii") as file:
                file.write(f"{value}\n")
        except OSError as error:
            if name.startswith("ipv6/") and isinstance(error, FileNotFoundError):
                continue  # a kernel without IPv6 has nothing to be silenced
            failed[name] = error.strerror or str(error)
    return failed


def host_settings(profile: Profile) -> dict[str, object]:
    """Return the settings of a host's network stack."""
    settings: dict[str, object] = {
        "ipv4/tcp_slow_start_after_idle": int(profile.slow_start_after_idle),
        "ipv4/tcp_no_metrics_save": 1,
        "ipv4/tcp_rmem": f"4096 262144 {profile.tcp_window_bytes}",
        "ipv4/tcp_wmem": f"4096 262144 {profile.tcp_window_bytes}",
        "ipv4/ip_local_port_range": "20000 60999",
        "ipv4/ping_group_range": "0 0",
        "ipv4/conf/all/arp_ignore": 1,
        "ipv4/conf/all/arp_announce": 2,
        **_every_box(),
    }
    if profile.congestion_control:
        settings["ipv4/tcp_congestion_control"] = profile.congestion_control
    if profile.tcp_limit_output_bytes:
        settings["ipv4/tcp_limit_output_bytes"] = profile.tcp_limit_output_bytes
    return settings


def router_settings(profile: Profile) -> dict[str, object]:
    """Return the settings of a switch that routes."""
    return {
        "ipv4/ip_forward": 1,
        "ipv4/fib_multipath_hash_policy": profile.hash_policy,
        "ipv4/fib_multipath_hash_seed": profile.hash_seed,
        "ipv4/conf/all/send_redirects": 0,
        "ipv4/conf/default/send_redirects": 0,
        **_every_box(),
    }


def _every_box() -> dict[str, object]:
    return {
        "ipv4/conf/all/rp_filter": 0,
        "ipv4/conf/default/rp_filter": 0,
        # Reaches only interfaces made later, so it is written before there are any.
        "ipv4/conf/default/ignore_routes_with_linkdown": 1,
        # Neighbour discovery of IPv6 would show up in the counters of links that should be silent.
        "ipv6/conf/default/disable_ipv6": 1,
    }
