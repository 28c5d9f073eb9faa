"""A Python for Spark that starts at once, because it is forked from one that has imported all.

Spark starts a new Python for every stream of a Python data source, and most of a short test would
be the import of PySpark, Arrow and pandas. What Spark starts instead is a small program that hands
its arguments, environment and files to a server; the server forks and runs the module asked for.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

IMPORTED = ("pandas", "numba", "pyspark.worker", "spillway.spark.burst_source", "spillway.guard")
SIZE_BYTES = 8
ROOT = Path(__file__).parents[1]

_PYTHON = """#!/bin/sh
exec {python} -IS {asks} "$@"
"""
# It lives as long as the fork does: Spark may kill either, and the other one ends.
_ASKS = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    asked = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(server, [len(asked).to_bytes({size}, "big")], [0, 1, 2])
    server.sendall(asked)
    server.recv(1)
"""


@contextlib.contextmanager
def forked_python() -> Iterator[Path]:
    """Give the path of a Python for `sparkContext.pythonExec`; it works until the context ends.

    Only Linux tells the fork when Spark has ended who asked for it: elsewhere it is the usual one.
    """
    if sys.platform != "linux":
        yield Path(sys.executable)
        return
    with tempfile.TemporaryDirectory(prefix="spillway-") as folder:
        address, asks, python = (Path(folder) / name for name in ("server", "asks.py", "python"))
        asks.write_text(_ASKS.format(address=str(address), size=SIZE_BYTES))
        words = {"python": shlex.quote(sys.executable), "asks": shlex.quote(str(asks))}
        python.write_text(_PYTHON.format(**words))
        python.chmod(0o755)
        with _serving(address):
            yield python


@contextlib.contextmanager
def _serving(address: Path) -> Iterator[None]:
    """Run the server with the settings of Spark's workers that count when Python starts."""
    of_workers = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES"}
    environment = {**os.environ, **of_workers, "OPENBLAS_NUM_THREADS": "1"}  # threads do not fork
    command = [sys.executable, "-m", "tests.forked_python", str(address)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdin=pipe, stdout=pipe) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdout.readline()  # it listens
        yield
        server.stdin.close()


def serve(address: str) -> None:
    """Fork for everyone who asks, until the standard input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(address)
        door.listen(64)
        print(flush=True)
        for name in IMPORTED:
            import_module(name)
        while sys.stdin not in select.select([door, sys.stdin], [], [])[0]:
            asking, _ = door.accept()
            if os.fork() == 0:
                door.close()
                _become(asking)
            asking.close()


def _become(asking: socket.socket) -> None:
    """Run the module that was asked for in place of whoever asked."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, files, _, _ = socket.recv_fds(asking, SIZE_BYTES, 3)
    arguments, environment, folder = json.loads(_read(asking, int.from_bytes(size, "big")))
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    time.tzset()
    _end_with(asking)
    atexit.register(os._exit, 0)  # taking all the imports apart would take longer than most runs
    option, module, *rest = arguments
    assert option == "-m", arguments
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit(0)


def _read(asking: socket.socket, size: int) -> bytes:
    with asking.makefile("rb") as sent:
        return sent.read(size)


def _end_with(asking: socket.socket) -> None:
    """Let the kernel send SIGTERM, as Spark would, when the other end of the socket closes."""
    fcntl.fcntl(asking, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(asking, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(asking, fcntl.F_SETFL, fcntl.fcntl(asking, fcntl.F_GETFL) | os.O_ASYNC)


if __name__ == "__main__":
    serve(sys.argv[1])
