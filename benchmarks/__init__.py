"""Benchmarks: every figure is measured against a named rival, in the same run, interleaved."""
