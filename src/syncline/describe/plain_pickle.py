"""A pickle of plain values: numbers, texts, lists, tuples and dicts, and nothing else.

Whatever a pickle wants to import is refused, so that it has nothing to call. PyTorch's flight recorder needs no more.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, ClassVar, NoReturn

from syncline.errors import FileError


class _PlainUnpickler(pickle._Unpickler):
    """Python's own unpickler: the one in C makes room for as many values as a hostile pickle names."""

    # A byte array is as long as the pickle says, before a byte of it is read.
    dispatch: ClassVar = {
        code: load for code, load in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]
    }

    def find_class(self, module: str, name: str) -> NoReturn:
        raise FileError(f"a pickle that imports {module}.{name}, which is not a plain value; it is not opened.")

    def get_extension(self, code: int) -> NoReturn:
        raise FileError(f"a pickle with extension {code}, which is not a plain value; it is not opened.")


def read_plain_pickle(data: bytes) -> Any:
    """Return what a pickle of plain values holds; a FileError names the first import in it, or what is broken."""
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except FileError:
        raise
    except Exception as error:  # a stream that is cut or invented may raise anything
        raise FileError(f"not a whole pickle of plain values: {error}.") from None
