"""The driver's workflows around the pure decisions: claim, recover, publish, commit, retain.

Each one reads facts, asks `protocol` what to do, and does it. None of them knows Spark.
"""
