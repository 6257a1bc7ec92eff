"""Topics of duckrow as tables and streams of Spark, which finds this package by its name.

    spark.read.format("duckrow").option("nodes", "m1:3825").option("subscribe", "rides").load()

Where it is not found (a file given to `spark-submit --py-files`), say so:

    spark.dataSource.register(pyspark_duckrow.DefaultSource)
"""

from .source import DefaultSource

__all__ = ["DefaultSource"]
