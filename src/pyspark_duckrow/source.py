"""The data source `duckrow` of Spark: which reader and writer there are, and what they are told."""

from __future__ import annotations

import logging

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from duckrow.node.errors import Refused

from . import columns, options
from .batch import BatchReader, FilteringReader
from .options import Options
from .sink import JobWriter, StreamWriter
from .stream import StreamReader

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

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return StreamReader(self._read(options.STREAM, schema), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise Refused("a topic is appended to: mode('append')")
        return JobWriter(self._write(options.WRITE, schema))

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        # With outputMode('complete') it is to overwrite: each batch is all of the result, and is appended, as
        # Kafka's sink does.
        return StreamWriter(self._write(options.WRITE_STREAM, schema))

    def _write(self, mode: str, schema: StructType) -> Options:
        told = self._options(mode)
        columns.check_written(_fields(schema), told.topic)
        return told

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
