"""Sends rows to Kafka on a schedule, in real time: a burst in the schedule is a burst in Kafka."""

from __future__ import annotations

import threading
import time
from typing import Any

from pyspark.sql import SparkSession

from spillway.spark.kafka_offsets import kafka_classes
from spillway.workload.rate import Schedule

_STEP_S = 0.05
_BYTES = "org.apache.kafka.common.serialization.ByteArraySerializer"


class Producer(threading.Thread):
    """A thread that sends row after row when its time has come; partitions take turns."""

    def __init__(
        self, spark: SparkSession, address: str, topic: str, schedule: Schedule, partitions: int
    ) -> None:
        """Connect through the client in the session; nothing is sent before `start`."""
        super().__init__(daemon=True, name="producer")
        assert spark._jvm is not None
        self._records = kafka_classes(spark).clients.producer
        settings = spark._jvm.java.util.HashMap()
        settings.put("bootstrap.servers", address)
        settings.put("key.serializer", _BYTES)
        settings.put("value.serializer", _BYTES)
        settings.put("linger.ms", "5")
        self._producer: Any = self._records.KafkaProducer(settings)
        self._topic, self._schedule, self._partitions = topic, schedule, partitions
        self._stopped = threading.Event()
        self.sent = 0
        self.begun_at_s = 0.0

    def run(self) -> None:
        """Send what is due, again and again, until the schedule ends."""
        self.begun_at_s = time.time()
        while not self._stopped.wait(_STEP_S) and self.sent < self._schedule.rows_total:
            for row in range(self.sent, self._schedule.rows_by(time.time() - self.begun_at_s)):
                self._send(row)
                self.sent = row + 1
        self._producer.close()

    def _send(self, row: int) -> None:
        value = str(row).encode()
        place = (self._topic, row % self._partitions, None)
        self._producer.send(self._records.ProducerRecord(*place, value))

    def stop(self) -> None:
        """Send no more."""
        self._stopped.set()
        self.join()
