"""The compiled XXH64 is PyPI's, for every length and content."""

from __future__ import annotations

import struct

import numpy as np
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from spillway.kernels import xxhash64 as kernel


def expected(data: bytes) -> int:
    return xxhash.xxh64_intdigest(data, seed=42)


@given(texts=st.lists(st.binary(max_size=200), max_size=8))
def test_texts_of_any_length_hash_as_they_should(texts: list[bytes]) -> None:
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    hashes = np.empty(len(texts), dtype=np.uint64)
    kernel.hash_texts(np.frombuffer(b"".join(texts), dtype=np.uint8), offsets, hashes)
    assert hashes.tolist() == [expected(text) for text in texts]


def test_every_length_around_the_stripes_hashes_as_it_should() -> None:
    data = np.arange(256, dtype=np.uint8)
    for size in range(140):
        found = kernel.hash_bytes(data, 3, 3 + size, np.uint64(42))
        assert found == expected(data[3 : 3 + size].tobytes()), size


@given(numbers=st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_numbers_hash_as_8_or_4_bytes(numbers: list[int]) -> None:
    hashes = np.empty(len(numbers), dtype=np.uint64)
    kernel.hash_longs(np.array(numbers, dtype=np.uint64), hashes, np.uint64(kernel.SEED))
    assert hashes.tolist() == [expected(struct.pack("<Q", number)) for number in numbers]
    halves = [number % 2**32 for number in numbers]
    kernel.hash_ints(np.array(halves, dtype=np.uint32), hashes)
    assert hashes.tolist() == [expected(struct.pack("<I", half)) for half in halves]
