"""Gradients of sharded models: the part of a rank, and its reduce-scatter."""
