"""XXH64 over arrays, as Spark's `xxhash64` applies it: seed 42, a missing value is 42 itself.

An INT hashes as 4 bytes, a BIGINT as 8, text and binary as what they are. The algorithm is the
public one (xxHash specification, 64-bit variant, little endian). All arithmetic is uint64: numba
would make floats of mixed signs.
"""

from __future__ import annotations

import numpy as np
from numba import njit

SEED = 42

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


@njit(cache=True, inline="always")
def _rotated(x, bits):
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@njit(cache=True, inline="always")
def _round(lane, word):
    return _rotated(lane + word * _P2, 31) * _P1


@njit(cache=True, inline="always")
def _take8(hashed, word):
    return _rotated(hashed ^ _round(np.uint64(0), word), 27) * _P1 + _P4


@njit(cache=True, inline="always")
def _take4(hashed, word):
    return _rotated(hashed ^ word * _P1, 23) * _P2 + _P3


@njit(cache=True, inline="always")
def _take1(hashed, byte):
    return _rotated(hashed ^ byte * _P5, 11) * _P1


@njit(cache=True, inline="always")
def _mixed(hashed):
    hashed = (hashed ^ (hashed >> np.uint64(33))) * _P2
    hashed = (hashed ^ (hashed >> np.uint64(29))) * _P3
    return hashed ^ (hashed >> np.uint64(32))


@njit(cache=True, inline="always")
def _word(data, begin, size):
    """Read `size` bytes, the least significant first."""
    word = np.uint64(0)
    for i in range(size):
        word |= np.uint64(data[begin + i]) << np.uint64(8 * i)
    return word


@njit(cache=True)
def _merged(hashed, lane):
    return (hashed ^ _round(np.uint64(0), lane)) * _P1 + _P4


@njit(cache=True)
def _stripes(data, begin, end, seed):
    """Take all whole stripes of 32 bytes."""
    a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
    for at in range(begin, end - 31, 32):
        a = _round(a, _word(data, at, 8))
        b = _round(b, _word(data, at + 8, 8))
        c = _round(c, _word(data, at + 16, 8))
        d = _round(d, _word(data, at + 24, 8))
    hashed = _rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)
    return _merged(_merged(_merged(_merged(hashed, a), b), c), d)


@njit(cache=True)
def hash_bytes(data, begin, end, seed):
    """Hash the bytes `data[begin:end]`."""
    size = end - begin
    hashed = _stripes(data, begin, end, seed) if size >= 32 else seed + _P5
    hashed += np.uint64(size)
    at = begin + size // 32 * 32
    while at + 8 <= end:
        hashed = _take8(hashed, _word(data, at, 8))
        at += 8
    if at + 4 <= end:
        hashed = _take4(hashed, _word(data, at, 4))
        at += 4
    for i in range(at, end):
        hashed = _take1(hashed, np.uint64(data[i]))
    return _mixed(hashed)


@njit(cache=True)
def hash_longs(words, hashes, seed):
    """Hash 8 bytes each, given as uint64."""
    for t in range(words.size):
        start = seed + _P5 + np.uint64(8)
        hashes[t] = _mixed(_take8(start, words[t]))


@njit(cache=True)
def hash_ints(words, hashes):
    """Hash 4 bytes each, given as uint32."""
    for t in range(words.size):
        start = np.uint64(SEED) + _P5 + np.uint64(4)
        hashes[t] = _mixed(_take4(start, np.uint64(words[t])))


@njit(cache=True)
def hash_texts(data, offsets, hashes):
    """Hash the pieces of `data` between one offset and the next."""
    for t in range(offsets.size - 1):
        hashes[t] = hash_bytes(data, offsets[t], offsets[t + 1], np.uint64(SEED))
