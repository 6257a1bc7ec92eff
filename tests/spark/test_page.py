"""The page on Spark says what its blocks print."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from test_docs import BLOCK, ROOT

# The session begins in the first of them, and a machine may be busy.
pytestmark = pytest.mark.timeout(600)


def test_the_blocks_of_the_page_on_spark_run_one_after_the_other(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    blocks = BLOCK.findall((ROOT / "docs/how-to/use-spark.md").read_text())
    assert len(blocks) >= 6
    for block, printed in blocks:
        exec(block, names)  # noqa: S102 - it is our own page
        said = capsys.readouterr().out

        assert not printed or said == printed
