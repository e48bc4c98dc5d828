"""The REST API: translate, call, translate."""
