"""`duckrow pipeline`: jobs on Spark that read topics, of a node or of all nodes."""

from __future__ import annotations

from typing import Final

from .pipeline import cli_audit, cli_compact, cli_latency, cli_metrics, cli_replay, cli_topics

COMMANDS: Final = (
    cli_audit.COMMAND,
    cli_latency.COMMAND,
    cli_topics.COMMAND,
    cli_metrics.COMMAND,
    cli_replay.COMMAND,
    cli_compact.COMMAND,
)
