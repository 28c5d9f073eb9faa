"""Asks a Kafka broker where its partitions begin, through the client that Spark's connector has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

Partition = tuple[str, int]

_CLIENT = "kafka."  # Spark hands options of this prefix on to the client
_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


def earliest_offsets(
    spark: SparkSession, options: Mapping[str, str], partitions: Sequence[Partition]
) -> dict[Partition, int | None]:
    """Return the first offset that each partition still has, None for one that is gone.

    Empty where it cannot be asked (Spark Connect): Spark itself fails when it reads, then.
    """
    java = getattr(spark, "_jvm", None)
    if java is None or not partitions:
        return {}
    kafka = kafka_classes(spark)
    consumer = kafka.clients.consumer.KafkaConsumer(_settings(java, options))
    try:
        asked = java.java.util.ArrayList()
        for at in _existing(consumer, {topic for topic, _ in partitions}) & set(partitions):
            asked.add(kafka.common.TopicPartition(*at))
        begins = consumer.beginningOffsets(asked).items()
        found = {(at.topic(), at.partition()): offset for at, offset in begins}
    finally:
        consumer.close()
    return {at: found.get(at) for at in partitions}


def kafka_classes(spark: SparkSession) -> Any:
    """Return the package of Kafka's client, as far as the session's jars have it."""
    assert spark._jvm is not None
    # A thread finds classes by its own loader, which may know nothing of jars that came later.
    loader = spark._jsparkSession.sharedState().jarClassLoader()
    spark._jvm.java.lang.Thread.currentThread().setContextClassLoader(loader)
    return spark._jvm.org.apache.kafka


def _existing(consumer: Any, topics: set[str]) -> set[Partition]:
    listed = {name: infos for name, infos in consumer.listTopics().items() if name in topics}
    return {(name, info.partition()) for name, infos in listed.items() for info in infos}


def _settings(java: Any, options: Mapping[str, str]) -> Any:
    settings = java.java.util.HashMap()
    for name, value in options.items():
        if name.lower().startswith(_CLIENT):
            settings.put(name[len(_CLIENT) :], value)
    settings.put("key.deserializer", _BYTES)
    settings.put("value.deserializer", _BYTES)
    settings.put("enable.auto.commit", "false")
    return settings
