"""What needs Spark: `Pipeline`, `PipelineQuery`, `format("lakestate")` and the demo's source.

    pipeline.py query.py session.py   what users write, and a running pipeline
    graph/                            the graph of a pipeline, checked and cut into stages
    execution/                        one epoch as Spark jobs, on the driver
    tasks/                            what runs inside Spark's tasks
    checkpoint/                       Spark's own checkpoint directory
    versions/                         every difference between versions of Spark
    data_source/                      the sink of `df.writeStream.format("lakestate")`
    diagnosis/                        what a machine and a store allow
    dry_run.py deploy_plan.py         what would keep a pipeline from starting, and become of its state
    kafka_connector.py kafka_source.py  what is wrong with Kafka's connector, topics and brokers
    spark_reason.py                   the reason in what Spark reports
    auction_source.py                 `spark.readStream.format("lakestate-auctions")`
    python_daemon.py                  Spark's Python daemon with our imports done

May import every other layer. Public names are exported by `lakestate` and imported on first use. Nothing is
imported here: Python workers import this package at every start.
"""
