"""Bulk work through Kafka: messages of books become sounds in a folder or an object store.

A consumer beside the studio, never a second batch engine: the studio makes every sound, in its own
batch queue and behind everybody who listens, and is spoken to over its client. What is here reads,
stores, announces and commits. Only `program` needs confluent-kafka.
"""
