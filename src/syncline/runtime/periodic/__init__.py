"""Synchronising less often: DiLoCo averages every so many steps, over a fixed group or over a crew."""
