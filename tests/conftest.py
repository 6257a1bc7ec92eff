"""What holds for all tests: how hypothesis draws, and that what they start hears a Ctrl-C.

The same examples each time in `make test`, fresh ones in `make test-long`.  A failing example that
`make test-long` draws is written into the test that found it, with @example.
"""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

# No deadlines: on a busy machine an example takes as long as it takes, and so does drawing it.
slow = [HealthCheck.too_slow]
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=slow)
settings.register_profile("fresh", max_examples=500, deadline=None, suppress_health_check=slow)
settings.load_profile(profile := os.environ.get("DUCKROW_EXAMPLES", "same"))
if profile == "same":
    # Among what it draws are numbers and texts of the modules that are loaded: others in each process of a
    # parallel run, so an example that fails came now and then.  There is no setting for it.
    none = Constants()
    providers._get_local_constants = lambda: none

# So it is where a shell has started the tests in the background.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
