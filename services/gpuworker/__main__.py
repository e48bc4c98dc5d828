"""``python -m gpuworker``."""

import os

# Threads of a team that wait for the next kernel should sleep soon, not spin: the worker shares its cores with the
# other services. On two busy cores, spinning as long as libgomp does by default made steps four times slower. libgomp
# reads this when torch loads it.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

from gpuworker.main import app

app()
