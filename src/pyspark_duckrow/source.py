"""The data source `duckrow` of Spark: which reader and writer there are, and what they are told."""

from __future__ import annotations

import logging

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from . import columns, options
from .batch import BatchReader, FilteringReader
from .options import Options

log = logging.getLogger("duckrow.spark")


class DefaultSource(DataSource):
    """`spark.read.format("duckrow")` and its three sisters; see docs/how-to/use-spark.md."""

    @classmethod
    def name(cls) -> str:
        return "duckrow"

    def schema(self) -> str:
        headers, metadata = options.schema_options(self.options)
        return columns.ddl(columns.chosen(headers=headers, metadata=metadata))

    def reader(self, schema: StructType) -> DataSourceReader:
        told = self._read(options.BATCH, schema)
        return (FilteringReader if told.pushdown else BatchReader)(told, schema)

    def _read(self, mode: str, schema: StructType) -> Options:
        columns.check_schema(_fields(schema))
        return self._options(mode)

    def _options(self, mode: str) -> Options:
        told, ignored = options.read(self.options, mode)
        if ignored:
            log.warning("options_ignored: %s mean nothing here, only to Kafka", ", ".join(ignored))
        return told


def _fields(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
