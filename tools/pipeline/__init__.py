"""Jobs on Spark: each is a pure transformation of tables, and a thin main around it.

`duckrow pipeline JOB` runs them (cli_pipeline.py).  Nothing here is imported by the tasks on the machines
of a Spark cluster: what they need is `pyspark_duckrow` alone.
"""
