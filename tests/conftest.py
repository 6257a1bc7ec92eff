"""What holds for all tests: how hypothesis draws, and that what they start hears a Ctrl-C.

The same examples each time in `make test`, fresh ones in `make test-long`.  A failing example that
`make test-long` draws is written into the test that found it, with @example.
"""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# No deadlines: on a busy machine an example takes as long as it takes, and so does drawing it.
slow = [HealthCheck.too_slow]
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=slow)
settings.register_profile("fresh", max_examples=500, deadline=None, suppress_health_check=slow)
settings.load_profile(os.environ.get("DUCKROW_EXAMPLES", "same"))

# So it is where a shell has started the tests in the background.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
