"""Traces as their tools write them: Chakra, Kineto, execution traces, and the times of kernels in them."""
