"""Options of the packet level that several commands share: loss, buffers, frames, recovery, background, failures."""

from __future__ import annotations

from typing import Annotated

import typer

PacketTransport = Annotated[
    str,
    typer.Option(
        "--transport",
        help="roce, infiniband, dcqcn, irn, dctcp, swift, hpcc, timely, cubic, ndp, eqds, uec, srd or slotted.",
    ),
]
LossOption = Annotated[
    list[str] | None,
    typer.Option(
        "--loss", metavar="RATE|LINK=RATE", help="Packet level: chance that a link destroys a packet; may be repeated."
    ),
]
BufferOption = Annotated[
    str | None,
    typer.Option(
        "--buffer",
        metavar="SIZE|TIME",
        help="Packet level: buffer of a switch: 16MiB, or 20us at the rate of all its ports.",
    ),
]
PayloadOption = Annotated[str | None, typer.Option("--payload", help="Packet level: bytes of payload (default 4KiB).")]
MtuOption = Annotated[
    int | None, typer.Option("--mtu", help="Packet level: bytes of a frame with its headers (1500, 9000).")
]
RecoveryOption = Annotated[
    str | None, typer.Option("--recovery", help="Packet level: go-back-n or selective (default: the transport's).")
]
PfcOption = Annotated[
    bool | None, typer.Option("--pfc/--no-pfc", help="Packet level: switches pause senders instead of dropping.")
]
EcnOption = Annotated[
    str | None,
    typer.Option(
        "--ecn",
        metavar="TIME[..TIME[:P]]",
        help="Packet level: depths at which a queue begins and ends to mark: 4us..12us.",
    ),
]
BackgroundOption = Annotated[
    str | None,
    typer.Option(
        "--background", metavar="LOAD[:SIZES]", help="Packet level: other load: 0.3:websearch|hadoop|storage."
    ),
]
FailOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail", metavar="PLACE@TIME[..TIME]", help="Packet level: leaf-00<->spine-01@2ms..5ms fails; may be repeated."
    ),
]
RerouteOption = Annotated[
    str | None, typer.Option("--reroute", help="With --fail: switches route around it after this time (default 1ms).")
]
