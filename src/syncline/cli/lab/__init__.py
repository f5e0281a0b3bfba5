"""`syncline lab`."""

from syncline.cli.lab.verb import app

__all__ = ["app"]
