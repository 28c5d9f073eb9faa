"""The memory: the latest state, else the one before, else a clean start; and one seed for good."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from spillway.state import files
from spillway.state.memory import Memory
from spillway.values import ControllerState, CostState, LoopState, Observation

DAMAGE = {
    "empty": b"",
    "truncated": files.encode("loop state", LoopState())[:-7],
    "another kind": files.encode("plan", LoopState()),
    "future": files.encode("loop state", LoopState()).replace(b'"spillway":1', b'"spillway":9'),
    "garbage": b"\x80\x04\x95garbage",
    "nested": b'{"spillway":1,"kind":"loop state","crc32":0,"body":' + b"[" * 100_000,
}


def state(batch_id: int) -> LoopState:
    return LoopState(
        query_id="q",
        run_id="r",
        batch_id=batch_id,
        cost=CostState(samples=((100.0, 1 / 3),)),
        controller=ControllerState(gain=0.7),
        seen=Observation(batch_id=batch_id, rows_in=9, rows_kept=3, duration_s=0.1),
        spans=((10.0, 9.0),),
    )


def saved(folder: Path, batches: int = 2) -> Memory:
    memory = Memory(folder=folder)
    for batch_id in range(batches):
        memory.save(state(batch_id))
    return memory


def test_the_latest_state_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    assert saved(tmp_path).load() == (state(1), [])


def test_a_new_folder_is_a_clean_start_without_complaint(tmp_path: Path) -> None:
    assert Memory(folder=tmp_path / "new").load() == (LoopState(), [])


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_state_falls_back_to_the_one_before_and_complains(
    tmp_path: Path, damage: str
) -> None:
    memory = saved(tmp_path)
    (tmp_path / "state.json").write_bytes(DAMAGE[damage])
    loaded, complaints = memory.load()
    assert loaded == state(0)
    assert len(complaints) == 1
    assert "state.json" in complaints[0]


@pytest.mark.parametrize("damage", DAMAGE)
def test_two_damaged_states_are_a_clean_start_with_two_complaints(
    tmp_path: Path, damage: str
) -> None:
    memory = saved(tmp_path)
    for name in ("state.json", "state.previous.json"):
        (tmp_path / name).write_bytes(DAMAGE[damage])
    loaded, complaints = memory.load()
    assert loaded == LoopState()
    assert len(complaints) == 2


def test_a_reader_sees_a_latest_state_at_every_moment_of_a_save(tmp_path: Path) -> None:
    memory = saved(tmp_path)
    seen: list[bool] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.append((tmp_path / "state.json").exists())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for batch_id in range(2, 200):
        memory.save(state(batch_id))
    done.set()
    watcher.join()
    assert len(seen) > 100
    assert all(seen)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state.json", "state.previous.json"]


def test_a_missing_latest_state_falls_back_to_the_one_before(tmp_path: Path) -> None:
    """As after a crash between the two steps of a save."""
    memory = saved(tmp_path)
    (tmp_path / "state.json").unlink()
    assert memory.load() == (state(0), [])


def test_a_save_over_a_damaged_state_keeps_the_good_one_before_it(tmp_path: Path) -> None:
    """Else a crash right after would leave two bad files and a clean start."""
    memory = saved(tmp_path)
    (tmp_path / "state.json").write_bytes(b"damaged")
    memory.save(state(2))
    (tmp_path / "state.json").write_bytes(b"damaged again")
    assert memory.load()[0] in (state(0), state(2))


def test_a_reader_during_saves_never_sees_a_clean_start(tmp_path: Path) -> None:
    memory, done, seen = saved(tmp_path), threading.Event(), []

    def read() -> None:
        while not done.is_set():
            seen.append(memory.load())

    reader = threading.Thread(target=read)
    reader.start()
    for batch_id in range(2, 200):
        memory.save(state(batch_id))
    done.set()
    reader.join()
    assert len(seen) > 10
    assert all(loaded.batch_id >= 0 for loaded, _ in seen)
    assert all(complaints == [] for _, complaints in seen)


def test_a_folder_that_is_a_file_is_a_clean_start_that_complains(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    loaded, complaints = Memory(folder=tmp_path / "state").load()
    assert loaded == LoopState()
    assert complaints


@pytest.mark.parametrize("folder", ["/proc/spillway", "/dev/null/spillway"])
def test_a_memory_that_cannot_be_written_raises_an_oserror(folder: str) -> None:
    memory = Memory(folder=Path(folder))
    with pytest.raises(OSError, match=r"\[Errno"):
        memory.save(state(0))
    with pytest.raises(OSError, match=r"\[Errno"):
        memory.seed()


def test_the_seed_is_drawn_once_and_for_all(tmp_path: Path) -> None:
    seeds = {Memory(folder=tmp_path).seed() for _ in range(5)}
    assert len(seeds) == 1
    assert 0 <= seeds.pop() < 2**62


def test_two_folders_have_two_seeds(tmp_path: Path) -> None:
    """False alarms: 1 in 2^62."""
    assert Memory(folder=tmp_path / "a").seed() != Memory(folder=tmp_path / "b").seed()


def test_threads_that_ask_at_once_get_one_seed(tmp_path: Path) -> None:
    start, seeds = threading.Barrier(8), []

    def ask() -> None:
        start.wait()
        seeds.append(Memory(folder=tmp_path).seed())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seeds) == 8
    assert len(set(seeds)) == 1


def test_a_damaged_seed_is_refused_not_redrawn(tmp_path: Path) -> None:
    """Another seed would make a replay shed other rows."""
    memory = Memory(folder=tmp_path)
    memory.seed()
    (tmp_path / "seed.json").write_bytes(b"damaged")
    with pytest.raises(files.BadStateFile, match=r"seed\.json"):
        memory.seed()


def test_a_state_from_before_there_were_concepts_loads(tmp_path: Path) -> None:
    """Fields that a later version added are missing: they have their defaults."""
    import msgspec

    fields = msgspec.to_builtins(state(3))
    del fields["concept"], fields["seen"]["groups"]
    files.write(tmp_path / "state.json", "loop state", fields)
    assert Memory(folder=tmp_path).load() == (state(3), [])
