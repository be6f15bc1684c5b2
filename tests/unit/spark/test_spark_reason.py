"""What Spark reports, and the reason in it."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from lakestate.spark.spark_reason import REASON_CHARS_MAX, spark_reason

ABORTED = """An error occurred while calling o153.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 6.0 failed 1 times, \
most recent failure: Lost task 0.0 in stage 6.0 (TID 6) (192.0.2.2 executor driver): \
java.lang.reflect.InvocationTargetException
\tat java.base/jdk.internal.reflect.Method.invoke(Method.java:118)
Caused by: java.lang.NumberFormatException: For input string: "x"
\t... 28 more

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.x(DAGScheduler.scala:1)
Caused by: java.lang.reflect.InvocationTargetException
\t... 1 more
Caused by: java.lang.NumberFormatException: For input string: "x"
\t... 28 more
"""
MISMATCH = """An error occurred while calling o62.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.TYPE] Encountered error in file:///x.parquet.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.x(QueryExecutionErrors.scala:1)
Caused by: org.apache.spark.sql.execution.datasources.NotSupportedException: column: [a], BINARY
"""
QUERY = """[STREAM_FAILED] Query [id = dc47-1, runId = 9523-2] terminated with exception: \
[PATH_NOT_FOUND] Path does not exist: file:/in. SQLSTATE: 42K03 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: q [id = dc47-1, runId = 9523-2]
Current Committed Offsets: {}
"""
ANALYSIS = """[UNRESOLVED_COLUMN] A column with name `x` cannot be resolved. SQLSTATE: 42703;
'Project ['x]
+- LogicalRDD [user#47], false
"""
PYTHON = """
  An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "job.py", line 14, in enrich
    raise ValueError("boom")
ValueError: boom
at once
"""

DAEMON = """An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, \
most recent failure: Lost task 0.0 in stage 0.0 (TID 0) (10.0.0.3 executor driver): \
org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
    File "<frozen runpy>", line 198, in _run_module_as_main
    File "python_daemon.py", line 38, in <module>
      import_module(name)
  ModuleNotFoundError: No module named 'pandas'
PYTHONPATH was:
  /opt/spark/python/lib/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number from daemon's stdout.
\tat org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:1)
"""
"""The daemon of Python's workers did not start."""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ABORTED, 'NumberFormatException: For input string: "x"'),
        (
            MISMATCH,
            "[FAILED_READ_FILE.TYPE] Encountered error in file:///x.parquet.; caused by: column: [a], BINARY",
        ),
        (QUERY, "[PATH_NOT_FOUND] Path does not exist: file:/in. SQLSTATE: 42K03"),
        (ANALYSIS, "[UNRESOLVED_COLUMN] A column with name `x` cannot be resolved. SQLSTATE: 42703"),
        (PYTHON, "ValueError: boom\nat once"),
        (
            "An error occurred while calling o1.x. Trace:\npy4j.Py4JException: no method x([])\n\tat y",
            "no method x([])",
        ),
        (
            "An error occurred while calling o1.x.\n: java.lang.OutOfMemoryError: Java heap space",
            "OutOfMemoryError: Java heap space",
        ),
        (
            "java.lang.Integer.foo does not exist in the JVM",
            "java.lang.Integer.foo does not exist in the JVM",
        ),
        ("java.lang.StackOverflowError", "java.lang.StackOverflowError"),
        (DAEMON, "ModuleNotFoundError: No module named 'pandas'"),
        ("", ""),
        ("x" * 5000, "x" * REASON_CHARS_MAX + " …"),
    ],
)
def test_the_reason_stands_on_its_own(text: str, reason: str) -> None:
    assert spark_reason(Exception(text)) == reason
