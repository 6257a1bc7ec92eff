"""For developers and for data: fuzzing, benchmarks, pipelines.  Imports all the others."""
