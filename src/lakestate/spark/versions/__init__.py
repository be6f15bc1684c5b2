"""Every difference between the versions of Spark that pipelines run on.

    supported.py      which versions those are, and what is said of others
    placement.py      rows to the partition with a given number, with and without `repartitionById`
    quick_logs.py     how Spark writes its own logs
    read_partitions.py  in how many partitions a batch is read
    kafka_options.py  the options of Kafka's sources
    data_sources.py   Python data sources, which Spark has gained part by part since 4.0

May import the layers below `spark`, and no other folder of it. No other module asks for a version, or tries
whether Spark has something. What all versions have is preferred wherever it is as good.
"""
