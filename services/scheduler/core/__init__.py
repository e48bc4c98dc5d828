"""The decisions: order, batching, stopping, beams. Without I/O, clock or logging."""
