"""Codecs on CUDA tensors, in Triton: the bytes of docs/method/codecs.md, one pass over memory each."""

from __future__ import annotations
