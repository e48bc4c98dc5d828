"""`python -m scheduler`."""

from scheduler.main import app

app(prog_name="scheduler")
