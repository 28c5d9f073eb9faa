"""Applications built on Spillway's public API."""
