"""`python -m octavo`."""

from octavo.main import app

app()
