"""The agent over HTTP: the page, its stream, metrics, and who may look."""
