"""A standalone Spark cluster of real processes on loopback, and a stream whose workers die."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from faults import points
from faults.processes import end_session, kill, named
from faults.supervisor import CHANCES, ROOT, Campaign

_START_S = 60.0
_EXECUTOR = "CoarseGrainedExecutorBackend"
_EVERY_S = 2.5  # from one kill of an executor to the next


@dataclass
class Standalone:
    """One master and some workers, each a process with one core; use it as a context."""

    folder: Path
    workers: int = 2
    hosts: int = 1  # addresses of loopback that workers share out
    memory: str = "700m"
    port: int = 0
    master: subprocess.Popen[bytes] | None = None
    alive: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """What a driver gives as its master."""
        return f"spark://127.0.0.1:{self.port}"

    def __enter__(self) -> Standalone:
        """Start all processes and wait until the workers are registered."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        arguments = [
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--webui-port",
            str(free_port()),
        ]
        self.master = self._start("master.Master", "master", *arguments)
        _wait_for(lambda: _listens(self.port), "the master")
        for _ in range(self.workers):
            self.add_worker()
        _wait_for(lambda: self._registered() >= self.workers, f"{self.workers} workers")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process of the cluster."""
        for process in filter(None, (*self.alive, self.master)):
            end_session(process.pid, patience_s=0.0)
            process.wait()

    def add_worker(self) -> None:
        """Start one more worker, of one core."""
        number = len(list(self.folder.glob("worker-*.log")))
        host = f"127.0.0.{1 + number % self.hosts}"
        options = ["--host", host, "--cores", "1", "--memory", self.memory]
        options += ["--webui-port", str(free_port()), "--work-dir", str(self.folder / "work")]
        self.alive.append(self._start("worker.Worker", f"worker-{number}", *options, self.url))

    def kill_worker(self) -> None:
        """Kill a worker with its executor, as if its machine were gone."""
        lost = self.alive.pop(0)
        kill([lost.pid, *named(lost.pid, _EXECUTOR)])
        end_session(lost.pid, patience_s=0.0)
        lost.wait()

    def executors(self) -> list[int]:
        """Return the executors' processes."""
        return [pid for worker in self.alive for pid in named(worker.pid, _EXECUTOR)]

    def _registered(self) -> int:
        return (self.folder / "master.log").read_text(errors="replace").count("Registering worker")

    def _start(self, name: str, log: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start one of Spark's own classes from the jars of the pyspark package."""
        import pyspark

        from spillway.java import ensure_java

        home = Path(pyspark.__file__).parent
        java = ensure_java().home / "bin" / "java"
        command = [str(java), "-cp", f"{home / 'jars' / '*'}", "-Xmx256m"]
        command += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        with (self.folder / f"{log}.log").open("wb") as file:
            return subprocess.Popen(
                [*command, f"org.apache.spark.deploy.{name}", *arguments],
                env=_environment(home),
                stdout=file,
                stderr=file,
                start_new_session=True,
            )


def free_port() -> int:
    """Return a port of loopback that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def on_a_cluster(folder: Path, *, seed: int, kills: int = 2) -> Iterator[Campaign]:
    """Yield a campaign on a standalone cluster whose executors, and once a worker, are killed."""
    # Two hosts: a task that straggles is not overtaken on its own.
    with Standalone(folder / "spark", workers=2, hosts=2) as cluster:
        yield Campaign(
            folder=folder,
            seed=seed,
            way="stream",
            kills=kills,
            master=cluster.url,
            chances={**CHANCES, "sink": 0.02, "straggler": 0.1},
            meddle=_Killer(cluster),
        )


def on_a_local_cluster(folder: Path, *, seed: int, kills: int = 1) -> Campaign:
    """Return a campaign in Spark's mode `local-cluster`: two executors below the driver."""
    home = _linked_home(folder / "spark")
    environment = {name: _environment(home)[name] for name in ("SPARK_HOME", "SPARK_SCALA_VERSION")}
    return Campaign(
        folder=folder,
        seed=seed,
        way="stream",
        kills=kills,
        master="local-cluster[2,1,600]",
        environment=environment,
    )


def _linked_home(folder: Path) -> Path:
    """Make a home of Spark whose workers keep their files in this folder, not in the package."""
    import pyspark

    folder.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars"):
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(Path(pyspark.__file__).parent / name)
    return folder


@dataclass
class _Killer:
    """Kills an executor every few seconds, if a batch was done since; once it is a whole worker."""

    cluster: Standalone
    killed: int = 0
    due_s: float = 0.0
    struck_s: float = 0.0

    def __call__(self, campaign: Campaign, dice: random.Random) -> None:
        """Strike if it is time."""
        log = campaign.folder / "attempts.log"
        if time.time() < self.due_s or log.stat().st_mtime < self.struck_s:
            return
        self.struck_s = time.time()
        self.due_s = self.struck_s + dice.uniform(0.5, 1.5) * _EVERY_S
        executors = self.cluster.executors()
        if not executors:
            return
        self.killed += 1
        if self.killed == 4:
            _note(campaign, "Spark worker killed", "with its executor")
            self.cluster.kill_worker()
            self.cluster.add_worker()
        else:
            _note(campaign, "executor killed", "at any moment")
            kill([dice.choice(executors)])


def _note(campaign: Campaign, kind: str, where: str) -> None:
    line = f'{{"life": {campaign.life}, "kind": "{kind}", "where": "{where}"}}\n'
    points.append(campaign.folder / "injected.log", line.encode())


def _environment(home: Path) -> dict[str, str]:
    """Return what every process of the cluster needs to know."""
    path = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": _scala_version(home),  # else a worker looks for a build of Spark
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }


def _scala_version(home: Path) -> str:
    core = next((home / "jars").glob("spark-core_*.jar"))
    return core.name.removeprefix("spark-core_").partition("-")[0]


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _wait_for(holds: object, what: str) -> None:
    assert callable(holds)
    deadline = time.monotonic() + _START_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {_START_S:g} s")
        time.sleep(0.1)
