"""Watching ledgers: every line once, from the beginning and as it comes, in bounded memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

from spillway.state.ledger import REFUSED, UNSAMPLED, Ledger
from spillway.state.ledger_lines import Tail
from spillway.telemetry.events import Observed, events_of
from spillway.telemetry.view import COLUMNS, OTHER, PARTS_MAX, View
from spillway.telemetry.watch import GUARDS_MAX, Watch, states
from spillway.values import Observation, StratumCount, TaskReport
from tests.telemetry.making import Story, write


def watched(*folders: Path) -> Watch:
    watch = Watch(list(folders))
    watch.look()
    while watch.read():
        pass
    return watch


def only(watch: Watch) -> View:
    (followed,) = watch.followed.values()
    return followed.view


def test_a_tail_yields_every_line_once_and_then_what_is_added(tmp_path: Path) -> None:
    story, tail = Story(), Tail(tmp_path / "ledger")
    assert list(tail.new()) == []
    write(tmp_path, story, batches=2500)
    assert [line.batch_id for line in tail.new()] == list(range(2500))
    assert list(tail.new()) == []
    write(tmp_path, story, first=2500, batches=3)
    assert [line.batch_id for line in tail.new()] == [2500, 2501, 2502]


def test_a_line_that_is_being_written_waits_until_it_is_whole(tmp_path: Path) -> None:
    write(tmp_path, Story(), batches=2)
    (path,) = (tmp_path / "ledger").glob("*.jsonl")
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    tail = Tail(tmp_path / "ledger")
    assert [line.batch_id for line in tail.new()] == [0]
    path.write_bytes(whole)
    assert [line.batch_id for line in tail.new()] == [1]
    assert tail.damaged_lines == 0


def test_damaged_lines_are_passed_over_and_counted(tmp_path: Path) -> None:
    write(tmp_path, Story(), batches=3)
    (path,) = (tmp_path / "ledger").glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"batch_id":1,', b'"batch_id":9,') + b"\x00{\n")
    tail = Tail(tmp_path / "ledger")
    assert [line.batch_id for line in tail.new()] == [0, 2]
    assert tail.damaged_lines == 2


def test_a_line_tells_the_same_events_as_the_whole_entry(tmp_path: Path) -> None:
    write(tmp_path, Story(subtasks=True, late=1.3), batches=60)
    told = [events_of(line) for line in Tail(tmp_path / "ledger").new()]
    assert told == [events_of(entry) for entry in Ledger(tmp_path / "ledger").entries()]


def test_rows_that_windows_did_not_need_are_told_from_those_that_an_operator_refused(
    tmp_path: Path,
) -> None:
    """Each under its own stratum and cause, from lines as from whole entries."""
    books = Ledger(tmp_path / "ledger")
    for batch_id, windows in enumerate((True, False)):
        task = TaskReport(instance=0, rows_in=100, rows_refused=30 + batch_id, windows=windows)
        seen = Observation(
            batch_id=batch_id,
            rows_in=100,
            rows_kept=70 - batch_id,
            duration_s=1.0,
            rows_refused=30 + batch_id,
            tasks=(task,),
        )
        whole = Story().entry(batch_id)
        books.append(replace(whole, seen=seen, plan=None))
    assert only(watched(tmp_path)).counted.shed == {UNSAMPLED: 30, REFUSED: 31}
    assert books.totals().shed == {UNSAMPLED: 30, REFUSED: 31}


def test_the_books_of_an_older_release_are_shown_too(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "faults" / "golden" / "0.1.0"
    view = only(watched(golden))
    assert view.counted.rows_in == 15_000
    assert view.words


def test_two_queries_of_one_guard_follow_each_other_in_time(tmp_path: Path) -> None:
    """A new checkpoint begins at batch 0 again; its segment may sort before the old one's."""
    story = Story()
    for number, query in enumerate(("a", "b", "c", "d")):
        at_s = story.started_at_s + 1000 * number
        write(tmp_path, replace(story, query_id=query, started_at_s=at_s), batches=10)
    view = only(watched(tmp_path))
    times = [point.numbers[0] for point in view.recent]
    assert len(times) == 40
    assert times == sorted(times)


def test_what_was_folded_counts_in_the_totals(tmp_path: Path) -> None:
    write(tmp_path, Story(), batches=4000)
    ledger = Ledger(tmp_path / "ledger", retain=1000)
    before = ledger.totals()
    ledger.fold()
    ledger.append(Story().entries(4000, 1)[0])
    counted = only(watched(tmp_path)).counted
    assert ledger.entries()[0].batch_id > 1000
    assert counted.batches == before.batches + 1 == ledger.totals().batches
    assert counted.rows_in == ledger.totals().rows_in
    assert sum(counted.shed.values()) == ledger.totals().rows_shed


def test_a_batch_that_was_run_and_written_again_counts_once(tmp_path: Path) -> None:
    write(tmp_path, Story(), batches=5)
    write(tmp_path, Story(), first=4, batches=2)
    counted = only(watched(tmp_path)).counted
    totals = Ledger(tmp_path / "ledger").totals()
    assert (counted.batches, counted.rows_in) == (totals.batches, totals.rows_in)


def test_many_strata_have_few_lines_and_few_series() -> None:
    view = View("x")
    seen = events_of(Story().entries(0, 1)[0])[0]
    assert isinstance(seen, Observed)
    strata = tuple(StratumCount(name=f"s{i}", rows_in=2, rows_kept=1) for i in range(100_000))
    told = replace(seen, strata=strata, rows_in=200_000, rows_kept=100_000)
    point = view.take([told], seq=1)
    assert point is not None
    assert len(point.numbers) == len(COLUMNS) + PARTS_MAX + 1
    assert len(view.parts) == PARTS_MAX
    assert len(view.counted.shed) <= 101
    assert view.counted.shed[OTHER, OTHER] == 100_000 - 100
    assert sum(view.counted.shed.values()) == 100_000


def test_the_first_look_shows_the_last_batches_before_all_is_read(tmp_path: Path) -> None:
    write(tmp_path, Story(), batches=3000)
    watch = Watch([tmp_path])
    watch.look()
    view = only(watch)
    assert view.seen is not None
    assert view.seen.batch_id == 2999
    assert not watch.loaded
    while watch.read():
        pass
    assert only(watch).counted.batches == 3000
    assert [point.batch[1] for point in only(watch).recent] == list(range(2400, 3000))


def test_memory_does_not_grow_with_the_history(tmp_path: Path) -> None:
    write(tmp_path / "short", Story(), batches=1_000)
    write(tmp_path / "long", Story(), batches=20_000)

    def held(folder: Path) -> int:
        tracemalloc.start()
        watch = watched(folder)
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert watch.loaded
        return size

    held(tmp_path / "short")  # what is imported and compiled on first use
    assert held(tmp_path / "long") < 1.5 * held(tmp_path / "short")


def test_states_are_found_in_and_under_folders_each_once(tmp_path: Path) -> None:
    for name in ("rides", "fares"):
        write(tmp_path / name / "spillway", Story(name=name), batches=1)
    rides = tmp_path / "rides" / "spillway"
    assert set(states([tmp_path, rides])) == {rides, tmp_path / "fares" / "spillway"}
    assert states([tmp_path / "not yet"]) == [tmp_path / "not yet"]


def test_guards_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, Story(name="rides"), batches=1)
    names = watched(tmp_path).names()
    assert len(set(names.values())) == 2
    assert all(name.startswith("rides (") for name in names.values())


def test_more_guards_than_the_bound_are_left_out(tmp_path: Path) -> None:
    for number in range(GUARDS_MAX + 5):
        (tmp_path / f"g{number}" / "ledger").mkdir(parents=True)
    assert len(watched(tmp_path).followed) == GUARDS_MAX


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", Story(), batches=3)
    (secret,) = (tmp_path / "elsewhere" / "ledger").glob("*.jsonl")
    (tmp_path / "state" / "ledger").mkdir(parents=True)
    (tmp_path / "state" / "ledger" / secret.name).symlink_to(secret)
    watch = Watch([tmp_path / "state"])
    watch.look()
    watch.read()
    assert only(watch).seen is None


def test_a_batch_without_rows_makes_a_point_without_a_share() -> None:
    view = View("x")
    seen = events_of(Story().entries(0, 1)[0])[0]
    assert isinstance(seen, Observed)
    point = view.take([replace(seen, rows_in=0, rows_kept=0, strata=())], seq=1)
    assert point is not None
    share = point.numbers[COLUMNS.index("share")]
    assert share != share
