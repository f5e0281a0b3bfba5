"""Codecs on CUDA tensors, in Triton: the bytes of docs/method/codec-bytes.md, one pass over memory each."""

from __future__ import annotations
