"""A real Kafka broker of one process on loopback, from jars: for tests and benchmarks."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaMember
from py4j.protocol import STATIC_PREFIX
from pyspark.sql import SparkSession

from spillway.spark.kafka_offsets import kafka_classes

JARS = Path(os.environ.get("SPILLWAY_KAFKA_JARS", Path(__file__).parents[1] / "build" / "kafka"))
MISSING = "no Kafka here: scripts/kafka_jars.py fetches its jars"
_CLUSTER = "c3BpbGx3YXktdGVzdHMtMQ"  # any 16 bytes in base64
_START_S = 60.0
_CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={logs}
num.partitions=1
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def connector_jars() -> str | None:
    """Return the value for `spark.jars`, None if the jars are not there."""
    connector = sorted((JARS / "connector").glob("*.jar"))
    there = connector and (JARS / "broker").is_dir()
    return ",".join(map(str, connector)) if there else None


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """Run a broker in KRaft mode and yield its address."""
    folder.mkdir(parents=True, exist_ok=True)
    port, controller = _free_ports(2)
    config = folder / "server.properties"
    config.write_text(_CONFIG.format(port=port, controller=controller, logs=folder / "logs"))
    with (folder / "broker.log").open("wb") as log:
        form = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(config)]
        subprocess.run(_java(*form), check=True, stdout=log, stderr=log)
        process = subprocess.Popen(_java("kafka.Kafka", str(config)), stdout=log, stderr=log)
        try:
            _wait_for(port, process)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


class Topics:
    """Makes, widens and trims topics through the client in a Spark session."""

    def __init__(self, spark: SparkSession, address: str) -> None:
        """Connect; `close` ends it."""
        assert spark._jvm is not None
        self._spark = spark
        self._java = spark._jvm.java
        settings = self._java.util.HashMap()
        settings.put("bootstrap.servers", address)
        self._admin = self._kafka.clients.admin.AdminClient.create(settings)

    @property
    def _kafka(self) -> Any:
        return kafka_classes(self._spark)

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic."""
        new = self._kafka.clients.admin.NewTopic(topic, partitions, 1)
        self._admin.createTopics(self._java.util.Collections.singleton(new)).all().get()

    def widen(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        wanted = self._kafka.clients.admin.NewPartitions.increaseTo(partitions)
        self._admin.createPartitions(self._java.util.Map.of(topic, wanted)).all().get()

    def expire(self, topic: str, partition: int, before: int) -> None:
        """Delete the rows before an offset, as their retention would."""
        at = self._kafka.common.TopicPartition(topic, partition)
        # By hand: the class has a second method of that name, which py4j may find first.
        client = self._spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
        named = STATIC_PREFIX + "org.apache.kafka.clients.admin.RecordsToDelete"
        upto = JavaMember("beforeOffset", None, named, client)(before)
        self._admin.deleteRecords(self._java.util.Map.of(at, upto)).all().get()

    def close(self) -> None:
        """Let go of the broker."""
        self._admin.close()


def _java(*arguments: str) -> list[str]:
    from spillway.java import ensure_java

    java = ensure_java().home / "bin" / "java"
    return [str(java), "-Xmx512m", "-cp", str(JARS / "broker" / "*"), *arguments]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the broker did not start within {_START_S:g} s")
