#!/usr/bin/env python3
"""Fetches what the tests and benchmarks on Kafka need: Spark's connector and a broker, as jars.

    scripts/kafka_jars.py [FOLDER]

FOLDER (build/kafka by default) then holds connector/ (for spark.jars) and broker/ (for a class
path). Everything comes from Maven Central, or from wherever the settings of `mvn` say. A connector
of the installed Spark is taken; where that release is not there, the next earlier one, and the
script says so: connectors of 4.x run on each other's Spark.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "build" / "kafka"
EARLIER = ("4.2.0", "4.1.1", "4.0.1", "4.0.0")
KAFKA = "3.9.2"
CONNECTOR = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13")
CLIENT = (f"org.apache.kafka:kafka-clients:{KAFKA}", "org.apache.commons:commons-pool2:2.12.0")
POM = f"""\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>spillway</groupId><artifactId>broker</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
    <version>{KAFKA}</version>
  </dependency></dependencies>
</project>
"""


def main() -> int:
    """Fetch what is missing; 0 if all is there then, 1 if not, with the reason."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    if shutil.which("mvn") is None:
        print("mvn is not on the PATH: install Maven, or put the jars there by hand")
        return 1
    taken = [newest(name, folder / "connector") for name in CONNECTOR]
    fetched = all(taken) and all(copied(name, folder / "connector") for name in CLIENT)
    if not fetched or not broker(folder / "broker"):
        print("not all jars could be fetched; `mvn` says above why")
        return 1
    print(f"connector {', '.join(map(str, taken))} and broker {KAFKA} are in {folder}")
    return 0


def newest(name: str, folder: Path) -> str | None:
    """Fetch the release of the installed Spark, else the next earlier one; return which."""
    own = version("pyspark")
    for release in (own, *(each for each in EARLIER if each < own)):
        if copied(f"org.apache.spark:{name}:{release}", folder, quiet=True):
            return release
    print(f"{name}: none of {own}, {', '.join(EARLIER)} was found")
    return None


def copied(artifact: str, folder: Path, *, quiet: bool = False) -> bool:
    """Put one jar, and nothing that it depends on, into the folder."""
    _, name, release = artifact.split(":")
    if (folder / f"{name}-{release}.jar").exists():
        return True
    goal = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder.absolute()}"]
    return mvn(*goal, quiet=quiet)


def broker(folder: Path) -> bool:
    """Put the broker and all that it depends on into the folder."""
    if (folder / f"kafka_2.13-{KAFKA}.jar").exists():
        return True
    with tempfile.TemporaryDirectory() as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(POM)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        return mvn("-f", str(pom), *goal, f"-DoutputDirectory={folder.absolute()}")


def mvn(*arguments: str, quiet: bool = False) -> bool:
    """Run Maven; what it prints is shown unless a failure is no surprise."""
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run(["mvn", "-q", "-B", *arguments], stdout=output).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
