"""The whole engine in one process, to measure what it costs to keep its services apart (docs/adr/0013)."""
