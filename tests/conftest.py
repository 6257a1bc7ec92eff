"""How hypothesis draws: the same examples each time in `make test`, fresh ones in `make test-long`.

A failing example that `make test-long` draws is written into the test that found it, with @example.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadlines: on a busy machine an example takes as long as it takes, and so does drawing it.
slow = [HealthCheck.too_slow]
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=slow)
settings.register_profile("fresh", max_examples=500, deadline=None, suppress_health_check=slow)
settings.load_profile(os.environ.get("DUCKROW_EXAMPLES", "same"))
