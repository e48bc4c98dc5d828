"""``python -m kvmanager``."""

from kvmanager.main import app

app()
