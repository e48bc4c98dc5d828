"""Steps on a device with memory of its own: one copy in, one copy out, decodes replayed as graphs."""
