"""How long the state machines run: ``ci`` takes 5,000 steps, ``nightly`` 200,000 (OCTAVO_HYPOTHESIS=nightly)."""

import os

from hypothesis import HealthCheck, settings

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile("ci", max_examples=100, stateful_step_count=50, deadline=None, suppress_health_check=QUIET)
settings.register_profile(
    "nightly", max_examples=2000, stateful_step_count=100, deadline=None, suppress_health_check=QUIET
)
settings.load_profile(os.environ.get("OCTAVO_HYPOTHESIS", "ci"))
