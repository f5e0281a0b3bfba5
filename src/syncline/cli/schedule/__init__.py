"""`syncline schedule`."""

from syncline.cli.schedule.verb import app

__all__ = ["app"]
