"""How hypothesis draws: the same examples each time in `make test`, fresh ones in `make test-long`.

A failing example that `make test-long` draws is written into the test that found it, with @example.
"""

from __future__ import annotations

import os

from hypothesis import settings

# No deadlines: on a busy machine an example takes as long as it takes.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("fresh", max_examples=500, deadline=None)
settings.load_profile(os.environ.get("DUCKROW_EXAMPLES", "same"))
