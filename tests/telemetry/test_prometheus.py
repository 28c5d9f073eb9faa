"""What Prometheus gets: right numbers, escaped names, and a bound on the series."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel
from grafana_foundation_sdk.models.prometheus import Dataquery
from prometheus_client.parser import text_string_to_metric_families

from spillway.dashboard.serve import serve
from spillway.state.ledger import Ledger
from spillway.telemetry.events import Observed, events_of
from spillway.telemetry.prometheus import EXPORTED, STRATA_MAX, text
from spillway.telemetry.watch import Watch
from spillway.values import StratumCount
from tests.conftest import wait_until
from tests.telemetry.making import Story, write

ROOT = Path(__file__).parents[2]
RULES, GRAFANA = ROOT / "operations" / "alerts.yml", ROOT / "operations" / "grafana-dashboard.json"
ODD = 'a "quoted"\nname {with="braces"} \\ and ☂'
TOKEN = "a-token-of-length-24-abc"


def watched(folder: Path) -> Watch:
    watch = Watch([folder])
    watch.look()
    while watch.read():
        pass
    return watch


def samples(watch: Watch) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return what a scrape holds, as Prometheus' own parser reads it."""
    families = text_string_to_metric_families(text(watch).decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_counters_are_the_sums_of_the_ledger_and_gauges_the_last_batch(tmp_path: Path) -> None:
    write(tmp_path, Story(subtasks=True), batches=60)
    found, ledger = samples(watched(tmp_path)), Ledger(tmp_path / "ledger")
    last, totals = ledger.entries()[-1], ledger.totals()

    def value(name: str, **labels: str) -> float:
        return found[f"spillway_{name}", frozenset({"guard": "rides", **labels}.items())]

    assert value("batches_total") == 60
    assert value("rows_in_total") == totals.rows_in
    assert value("rows_kept_total") == totals.rows_kept
    shed = [v for (name, _), v in found.items() if name == "spillway_rows_shed_total"]
    assert sum(shed) == totals.rows_shed
    assert value("latency_seconds", statistic="mean") == last.seen.latency_s_mean
    assert value("objective_seconds", of="average") == 2.0
    assert value("objective_held") == 1.0
    assert value("keep_ratio", stratum="below") == pytest.approx(0.01, abs=0.002)
    assert value("subtask_ratio", subtask="mood") == pytest.approx(0.25, abs=0.01)
    assert value("budget_seconds") == pytest.approx(1.1)
    assert value("last_batch_timestamp_seconds") == last.started_at_s + last.seen.duration_s


def test_an_odd_name_comes_back_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, Story(name=ODD), batches=2)
    guards = {dict(labels)["guard"] for _, labels in samples(watched(tmp_path))}
    assert guards == {ODD}


def test_1e5_strata_make_at_most_the_capped_number_of_series(tmp_path: Path) -> None:
    write(tmp_path, Story(), batches=1)
    watch = watched(tmp_path)
    (followed,) = watch.followed.values()
    before = len(samples(watch))
    seen = followed.view.seen
    assert isinstance(seen, Observed)
    strata = tuple(StratumCount(name=f"s{i}", rows_in=4, rows_kept=1) for i in range(100_000))
    for half in (strata[:50_000], strata[50_000:]):
        told = replace(seen, strata=half, rows_in=200_000, rows_kept=50_000)
        followed.view.take([told], seq=9)
    found = samples(watch)
    by_name = Counter(name for name, _ in found)
    assert by_name["spillway_rows_shed_total"] <= STRATA_MAX + 1
    assert by_name["spillway_keep_ratio"] <= STRATA_MAX + 1
    assert len(found) <= before + 2 * (STRATA_MAX + 1)
    assert sum(v for (n, _), v in found.items() if n == "spillway_rows_shed_total") >= 150_000


def test_what_is_not_known_has_no_sample(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    found = samples(watched(tmp_path))
    assert {name for name, _ in found} == {
        "spillway_batches_total",
        "spillway_rows_in_total",
        "spillway_rows_kept_total",
    }


def known_names() -> set[str]:
    return {f"spillway_{each.name}{'_total' if each.counts else ''}" for each in EXPORTED}


def named_in(expression: str) -> set[str]:
    return set(re.findall(r"\bspillway_\w+", expression))


def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    assert named_in(RULES.read_text()) <= known_names()
    panels = json.loads(GRAFANA.read_text())["panels"]
    asked = named_in(" ".join(target["expr"] for panel in panels for target in panel["targets"]))
    assert asked <= known_names()
    assert len(asked) >= 15


def test_the_grafana_dashboard_has_what_grafana_needs_to_load_it() -> None:
    board: dict[str, Any] = json.loads(GRAFANA.read_text())
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= board.keys()
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert 0 <= place["x"] <= 24 - place["w"]
        assert panel["type"] in ("timeseries", "stat")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))  # no panel covers another
    variables = {variable["name"]: variable["type"] for variable in board["templating"]["list"]}
    assert variables == {"datasource": "datasource", "guard": "query"}


def lost(given: Any, read: Any, place: str = "") -> list[str]:
    """Name what stands in one tree of JSON and not, or not so, in the other."""
    if isinstance(given, dict) and isinstance(read, dict):
        missing = [f"{place}.{key}" for key in given if key not in read]
        both = [lost(given[key], read[key], f"{place}.{key}") for key in given if key in read]
        return missing + [each for found in both for each in found]
    if isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        pairs = enumerate(zip(given, read, strict=True))
        return [each for i, pair in pairs for each in lost(*pair, f"{place}[{i}]")]
    return [] if given == read else [place]


def test_grafanas_own_model_reads_the_dashboard_and_loses_nothing_of_it() -> None:
    """But the definition of a variable, which stands in its query once more."""
    register_default_plugins()
    board: dict[str, Any] = json.loads(GRAFANA.read_text())
    read = Dashboard.from_json(board)
    again = json.loads(JSONEncoder().encode(read))
    guard = board["templating"]["list"][1]
    assert guard["query"]["query"] == guard["definition"]
    assert lost(board, again) == [".templating.list[1].definition"]
    panels = [panel for panel in read.panels or [] if isinstance(panel, Panel)]
    assert [len(panel.targets or []) for panel in panels] == [
        len(panel["targets"]) for panel in board["panels"]
    ]
    assert all(isinstance(each, Dataquery) for panel in panels for each in panel.targets or [])


INSTALLED = all(map(shutil.which, ("promtool", "prometheus")))
MISSING = "Prometheus is not installed (Debian: apt install prometheus)"
needs_prometheus = pytest.mark.skipif(not INSTALLED, reason=MISSING)


@needs_prometheus
def test_prometheus_accepts_the_rules() -> None:
    found = subprocess.run(
        ["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0, found.stderr
    assert "8 rules found" in found.stdout


@needs_prometheus
def test_prometheus_can_read_every_expression_of_the_grafana_dashboard(tmp_path: Path) -> None:
    panels = json.loads(GRAFANA.read_text())["panels"]
    asked = [target["expr"].replace("$guard", ".*") for p in panels for target in p["targets"]]
    assert not any("$" in expression for expression in asked)  # no variable that is not there
    rules = [{"record": f"panel:{i}", "expr": expr} for i, expr in enumerate(asked)]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "grafana", "rules": rules}]}))
    found = subprocess.run(
        ["promtool", "check", "rules", str(path)], capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0, found.stderr
    assert f"{len(asked)} rules found" in found.stdout


@needs_prometheus
def test_promtool_finds_nothing_to_improve_in_the_metrics(tmp_path: Path) -> None:
    write(tmp_path, Story(name=ODD, subtasks=True, late=1.3), batches=70)
    found = subprocess.run(
        ["promtool", "check", "metrics"],
        input=text(watched(tmp_path)),
        capture_output=True,
        timeout=60,
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, b"", b"")


@needs_prometheus
def test_a_real_prometheus_scrapes_the_exporter_with_its_token(tmp_path: Path) -> None:
    write(tmp_path / "state", Story(name=ODD), batches=60)
    server = serve([tmp_path / "state"], token=TOKEN)
    target = server.url.removeprefix("http://").partition("/")[0]
    scrape = {
        "job_name": "spillway",
        "scrape_interval": "1s",
        "authorization": {"credentials": TOKEN},
        "static_configs": [{"targets": [target]}],
    }
    config = {"rule_files": [str(RULES)], "scrape_configs": [scrape]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    listen = f"127.0.0.1:{_free_port()}"
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            f"--web.listen-address={listen}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        query = urllib.parse.quote("spillway_rows_in_total")
        found: list[Any] = []

        def scraped() -> bool:
            found[:] = _asked(f"http://{listen}/api/v1/query?query={query}")
            return bool(found)

        wait_until(scraped, "Prometheus has scraped", timeout_s=120)
        assert found[0]["metric"]["guard"] == ODD
        totals = Ledger(tmp_path / "state" / "ledger").totals()
        assert float(found[0]["value"][1]) == totals.rows_in
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        server.stop()


def _free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _asked(url: str) -> list[Any]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return list(json.load(answer)["data"]["result"])
    except OSError:
        return []


def test_events_and_metrics_agree_on_what_was_shed(tmp_path: Path) -> None:
    write(tmp_path, Story(), batches=80)
    told = [events_of(entry)[0] for entry in Ledger(tmp_path / "ledger").entries()]
    shed = sum(event.rows_shed for event in told if isinstance(event, Observed))
    found = samples(watched(tmp_path))
    assert sum(v for (n, _), v in found.items() if n == "spillway_rows_shed_total") == shed
