"""The room: what one rack may hold, and how racks stand in rows."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.errors import UsageError

RACK_POWER_W = 45_000.0
"""What a rack draws that is filled box by box: four hosts of 10.2 kW and their leaf."""
FRAME_KG = 130.0


@dataclass(frozen=True)
class Room:
    """What a rack holds and how racks stand: limits of one rack, pitch of racks and rows, height of the cable tray."""

    rack_u: int = 48
    rack_power_w: float | None = None
    """What the room feeds any rack. None: 45 kW to those filled box by box; those sold as one have their own feeds."""
    rack_weight_kg: float = 1_360.0
    racks_per_row: int = 16
    rack_pitch_m: float = 0.6
    row_pitch_m: float = 3.0
    tray_above_m: float = 0.5
    slack: float = 0.1
    """Share of the measured way that is added, for bends and a second dressing."""

    def __post_init__(self) -> None:
        limits = {
            "--rack-units": self.rack_u,
            "--rack-weight": self.rack_weight_kg,
            "racks_per_row": self.racks_per_row,
            "--rack-power": None if self.rack_power_w is None else self.rack_power_w / 1e3,
        }
        for name, value in limits.items():
            if value is not None and not value > 0:
                raise UsageError(f"{name} must be positive, got {value:g}.")

    @property
    def filled_power_w(self) -> float:
        """What a rack may draw that is filled box by box."""
        return RACK_POWER_W if self.rack_power_w is None else self.rack_power_w
