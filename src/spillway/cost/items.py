"""Any key as the 31-bit item that Spark and Python hash alike: `xxhash64(key) & 2147483647`.

31 bits, so that the product with a multiplier of the sketch fits into a BIGINT even where Spark
checks for overflow. Two keys share an item once in 2^31. A missing key is an item of its own (42,
the seed, as in Spark). Types are Spark's: an int32 array is an INT column and hashes other than the
same numbers as BIGINT; a Python integer is a BIGINT. Cast one side where the types differ.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from spillway.kernels import xxhash64 as kernel

if TYPE_CHECKING:
    import pyarrow as pa

ITEM_MASK = (1 << 31) - 1

Key = int | float | str | bytes | None


def item_sql(key: str) -> str:
    """Return the item of a key as Spark SQL; `key` is an expression or a quoted column name.

    >>> item_sql("`city`")
    '(xxhash64(`city`) & 2147483647)'
    """
    return f"(xxhash64({key}) & {ITEM_MASK})"


def item_of(key: Key) -> int:
    """Return the item of one key.

    >>> [item_of("Athens")] == items_of(np.array(["Athens"])).tolist()
    True
    """
    if key is None:
        return kernel.SEED
    return xxhash.xxh64_intdigest(_bytes(key), seed=kernel.SEED) & ITEM_MASK


def items_of(keys: NDArray[Any] | pa.Array) -> NDArray[np.int64]:
    """Return the items of a flat array of keys: numbers, text, bytes, with None where missing.

    NumPy (also of objects) or Arrow; `ValueError` where Spark has no column of such a type.
    """
    import pyarrow as pa

    try:
        array = keys if isinstance(keys, pa.Array) else pa.array(keys)
    except pa.ArrowException as error:
        raise ValueError(f"keys must be a flat array of one type, got {error}") from error
    hashes = _hashes(array)
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = kernel.SEED
    return (hashes & np.uint64(ITEM_MASK)).astype(np.int64)


def _hashes(array: pa.Array) -> NDArray[np.uint64]:
    """Hash every value; what stands where one is missing does not matter."""
    import pyarrow.types as kind

    found = np.full(len(array), kernel.SEED, dtype=np.uint64)
    if kind.is_int64(array.type) or kind.is_float64(array.type):
        kernel.hash_longs(_words(array, np.uint64), found, np.uint64(kernel.SEED))
    elif kind.is_signed_integer(array.type) or kind.is_boolean(array.type):
        kernel.hash_ints(_words(_as_int32(array), np.uint32), found)
    elif kind.is_float32(array.type):
        kernel.hash_ints(_words(array, np.uint32), found)
    elif not kind.is_null(array.type):
        kernel.hash_texts(*_texts(array), found)
    return found


def _words(array: pa.Array, word: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
    """Return the values' bits; a float that is missing, NaN or -0.0 has one spelling."""
    import pyarrow.compute as pc

    values = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), values.dtype.type(math.nan), values + 0)
    return np.ascontiguousarray(values).view(word)


def _as_int32(array: pa.Array) -> pa.Array:
    import pyarrow as pa

    return array.cast(pa.int32())


def _texts(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of all texts and where each begins."""
    import pyarrow as pa

    try:
        texts = array.cast(pa.large_binary())
    except pa.ArrowException as error:
        raise ValueError(f"keys must be of a type that Spark has, got {array.type}") from error
    _, offsets, data = texts.buffers()
    begins = np.frombuffer(offsets, dtype=np.int64)[texts.offset :][: len(texts) + 1]
    return np.frombuffer(data or b"", dtype=np.uint8), begins


def _bytes(key: int | float | str | bytes) -> bytes:
    if isinstance(key, bool):
        return struct.pack("<i", key)
    if isinstance(key, int):
        return _long_bytes(key)
    if isinstance(key, float):
        return struct.pack("<d", math.nan if math.isnan(key) else key + 0.0)
    if not isinstance(key, str | bytes):
        raise ValueError(f"key must be int, float, str, bytes or None, got {type(key).__name__}")
    return key.encode() if isinstance(key, str) else key


def _long_bytes(key: int) -> bytes:
    if not -(1 << 63) <= key < 1 << 63:
        raise ValueError(f"key must fit into 64 bits, got {key}")
    return struct.pack("<q", key)
