"""Kafka: the rows of an epoch as messages of one transaction, each exactly once for `read_committed` readers.

- `sink.py` is what users declare.
- `messages.py` turns rows into keys, values, headers and partitions; `json_values.py` columns into JSON.
- `delivery.py` decides whether an epoch is delivered, and what to do about a lost answer.
- `transactions.py` writes a transaction, `control_topic.py` holds what recovery reads.
- `native_producer.py` hands messages to librdkafka as columns; `librdkafka.py` declares what that needs.
- `topics.py` refuses what cannot work before the first epoch; `client.py` speaks to the broker.

May import `staged` and what `sinks` may. Only this folder imports `confluent_kafka`, when it is used.
"""
