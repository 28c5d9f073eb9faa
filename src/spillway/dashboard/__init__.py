"""The live page: reads telemetry, serves it on this machine, and changes nothing."""
