"""Who may connect: this machine, or clients that show the token. TLS encrypts but does not authenticate clients."""

from __future__ import annotations

import ipaddress
import os
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path

from syncline.errors import WatchError

MIN_TOKEN = 16
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


@dataclass(frozen=True)
class Access:
    """Where the server listens and what it asks of those who come."""

    address: str = "127.0.0.1"
    port: int = 9750
    token: str = ""
    certificate: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise WatchError(f"{self.port} is not a port.", hint="Ports run from 1 to 65535; 0 lets the system choose.")
        if bool(self.certificate) != bool(self.key):
            raise WatchError("TLS needs both --tls-cert and --tls-key.")
        for path in filter(None, (self.certificate, self.key)):
            if not os.access(path, os.R_OK):
                raise WatchError("this TLS file cannot be read.", where=path)
        if self.certificate:
            _load_certificate(self.certificate, self.key)
        if self.token and len(self.token) < MIN_TOKEN:
            raise WatchError(
                f"the token has {len(self.token)} characters; at least {MIN_TOKEN} are needed.",
                hint="Make one: python -c 'import secrets; print(secrets.token_urlsafe(24))'.",
            )
        if not self.is_loopback and not self.token:
            raise WatchError(
                f"listening on {self.address} without a token would show this host to its whole network.",
                hint="Add --token-file FILE (TLS does not authenticate clients), or use 127.0.0.1 and an SSH tunnel.",
            )

    @property
    def is_loopback(self) -> bool:
        """Tell whether only this machine can connect."""
        if self.address == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return False

    @property
    def url(self) -> str:
        """Where to point a browser, without the token."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}/"

    def admits(self, shown: str | None) -> bool:
        """Tell whether a token that was shown opens the door; takes the same time whichever character is wrong."""
        return not self.token or secrets.compare_digest((shown or "").encode(), self.token.encode())

    def knows_host(self, header: str | None) -> bool:
        """Tell whether a Host header may come here: on loopback only this machine's, against rebound DNS names."""
        if not self.is_loopback or self.token:
            return True
        name = (header or "").lower()
        known = LOOPBACK_NAMES | {self.address.lower(), f"[{self.address.lower()}]"}
        return name in known or name.rpartition(":")[0] in known


def _load_certificate(certificate: str, key: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        problem = f"no certificate with its key: {getattr(error, 'reason', None) or error}."
        raise WatchError(problem, where=certificate, hint="Give both as PEM, without a passphrase.") from None


def read_token(path: str | os.PathLike[str]) -> str:
    """Read a token from a file that only its owner can read."""
    file = Path(path)
    try:
        mode = file.stat().st_mode
        token = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WatchError(f"cannot read the token: {getattr(error, 'strerror', error)}.", where=str(path)) from None
    if not token:
        raise WatchError("this token file is empty.", where=str(path), hint="Put at least 16 characters into it.")
    if mode & 0o077:
        raise WatchError("others can read this token.", where=str(path), hint=f"chmod 600 {path}")
    return token
