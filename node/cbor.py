"""CBOR for heads, strictly: what two parsers could read differently is refused.

Only heads, from complete frames, come here; bodies are opaque.  The options and their reasons
were measured: indefinite lengths, duplicate keys, non-text keys and every tag are ways to make a
decoder slow, large or ambiguous.
"""

from __future__ import annotations

from typing import Any

import cbor2

from .env import Buffer
from .errors import Corrupt
from .limits import HEAD_DEPTH_MAX


def dumps(value: Any) -> bytes:
    return cbor2.dumps(value)
