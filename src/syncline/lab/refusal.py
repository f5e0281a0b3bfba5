"""Why a lab cannot be built here, and what to do: one clear error for every step that a kernel may refuse."""

from __future__ import annotations

from syncline.errors import LabError

_HINTS = {
    "unshare(NEWUSER)": "Run as root, or allow user namespaces: sysctl kernel.unprivileged_userns_clone=1 (Debian), "
    "kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), user.max_user_namespaces above 0; in a container "
    "start it with --security-opt seccomp=unconfined, or --privileged.",
    "write uid_map": "The system restricts user namespaces (kernel.apparmor_restrict_unprivileged_userns=0 allows them "
    "on Ubuntu). Or run as root.",
    "write setgroups": "User namespaces are restricted here. Run as root.",
    "write gid_map": "User namespaces are restricted here. Run as root.",
    "unshare(NEWPID|NEWNET|NEWNS|NEWIPC)": "In a container start it with --privileged (or --cap-add SYS_ADMIN, "
    "--cap-add NET_ADMIN and --security-opt seccomp=unconfined). As an ordinary user, allow user namespaces.",
    "mount(private)": "In a container start it with --privileged.",
    "veth": "The kernel lacks the veth module: modprobe veth, or a kernel with CONFIG_VETH.",
    "bridge": "The kernel lacks bridges: modprobe bridge, or a kernel with CONFIG_BRIDGE.",
    "tbf": "The kernel lacks the token bucket filter: modprobe sch_tbf, or a kernel with CONFIG_NET_SCH_TBF.",
}


def refusal(step: str, reason: str) -> LabError:
    """Return the error for a step that the kernel refused."""
    return LabError(
        f"a lab cannot be built here: {step} failed ({reason}).",
        detail="A lab needs root or user namespaces, veth, bridges and the tbf shaper.",
        hint=_HINTS.get(step, "Run as root on a Linux machine."),
    )
