"""Measures servers with an OpenAI-compatible API: what is asked, how it is sent, and what the answers took."""
