"""``python -m gpuworker``."""

from gpuworker.main import app

app()
