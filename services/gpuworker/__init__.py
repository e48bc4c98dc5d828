"""Computes steps: holds a model and its paged KV memory, and decides nothing."""
