"""The decisions: plans in, grants out. Deterministic, and without I/O, clock or logging."""
