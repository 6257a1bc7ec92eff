"""Jobs on Spark: each is a pure transformation of tables, and a thin main around it.

`duckrow pipeline JOB` runs them: each has a file cli_JOB.py, and what it does stands in the other ones.  The
tasks on the machines of a Spark cluster import none of it, but for postgres.py: else they need
`pyspark_duckrow` alone.
"""
