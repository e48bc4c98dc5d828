"""Keeps the block tables, reference counts and prefix cache of every worker's KV memory."""
