"""Loops over arrays, compiled by numba: no classes, no I/O. Each has a slow twin in the tests."""
