"""How a host looks names up: /etc/hosts, the order of its sources, its name servers, and what its resolver answers.

lookup = read_lookup(root)
lookup.files["h3"]                      # ("10.0.0.4",)
ask(root, "h3", files_too=True)         # the same through the resolver; None where it cannot be asked
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from syncline.host.root import Root

MAX_NAMES = 4096
"""Names of a hosts file that a report carries; more is a block list, or a cluster that has outgrown hosts files."""
DEFAULT_ORDER = ("dns", "files")
"""What glibc does without a line for hosts in nsswitch.conf."""
_QUICK = "RES_OPTIONS=timeout:1 attempts:1"
_NOT_FOUND = "exit status 2"
_LOCAL = re.compile(r"127\.|::1$|0\.0\.0\.0$|fe00::|ff0")


@dataclass(frozen=True)
class Lookup:
    """The sources of names, in the order they are asked."""

    files: Mapping[str, tuple[str, ...]]
    """/etc/hosts: name -> addresses."""
    order: tuple[str, ...]
    servers: tuple[str, ...]
    search: tuple[str, ...]

    @property
    def others(self) -> dict[str, tuple[str, ...]]:
        """Names of /etc/hosts that lead to addresses other hosts can reach."""
        kept = {name: tuple(a for a in addresses if not is_local(a)) for name, addresses in self.files.items()}
        return dict(list({name: addresses for name, addresses in kept.items() if addresses}.items())[:MAX_NAMES])


def read_lookup(root: Root) -> Lookup:
    """Read how a host looks names up; what is absent is as glibc takes it."""
    resolver = _words(root.text("etc/resolv.conf") or "")
    rows = _words(root.text("etc/nsswitch.conf") or "")
    order = next((row[1:] for row in rows if row[0] == "hosts:"), list(DEFAULT_ORDER))
    return Lookup(
        files=_files(root.text("etc/hosts") or ""),
        order=tuple(word for word in order if not word.startswith("[")),
        servers=tuple(row[1] for row in resolver if row[0] == "nameserver" and len(row) > 1),
        search=tuple(word for row in resolver if row[0] in ("search", "domain") for word in row[1:]),
    )


def ask(root: Root, name: str, *, key: str, only: str = "") -> tuple[str, ...] | None:
    """Return what the resolver answers (from one source with `only`), or None where it cannot be asked."""
    argv = ("env", _QUICK, "getent", *(("-s", only) if only else ()), "ahosts", name)
    text = root.command(key, argv, quiet=True)
    if text is None:
        reason = root.problems.get(f"`{' '.join(argv)}`", "")
        return () if reason.startswith(_NOT_FOUND) else None
    return tuple(dict.fromkeys(re.findall(r"^([0-9a-fA-F.:]+)(?:%\S+)?[ \t]", text, re.MULTILINE)))


def is_local(address: str) -> bool:
    """Say whether an address means the host itself, wherever it is used."""
    return bool(_LOCAL.match(address))


def _files(text: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for address, *names in _words(text):
        for name in names:
            found[name] = (*found.get(name, ()), address)
    return found


def _words(text: str) -> list[list[str]]:
    """Return the words of each line that has some, without comments."""
    rows = (re.split(r"[#;]", line, maxsplit=1)[0].split() for line in text.splitlines())
    return [row for row in rows if row]
