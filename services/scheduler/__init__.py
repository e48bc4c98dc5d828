"""Serves the REST API and decides which sequences compute in each step."""
