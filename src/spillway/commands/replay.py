"""`spillway replay`: the shed rows back, from a source that still holds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from spillway.spark.replay_run import Outcome


def replay(
    state: Annotated[
        Path,
        typer.Argument(
            metavar="STATE_DIR", help="The guard's state folder.", exists=True, file_okay=False
        ),
    ],
    batches: Annotated[str, typer.Option(help="Which batches: 120-180, or 7,9,12-15.")],
    source: Annotated[
        str, typer.Option("--format", help="Format of the stream's source: kafka, parquet, ...")
    ],
    option: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE: an option of the source, as the stream gave it. Repeat."),
    ] = None,
    schema: Annotated[
        str | None, typer.Option(help='Schema of the source, if the stream gave one: "id long".')
    ] = None,
    prepare: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="What was done to the stream before protect, as a function of a DataFrame.",
        ),
    ] = None,
    to: Annotated[
        str, typer.Option(help="Where to write the rows. If none, they are only counted.")
    ] = "",
    to_format: Annotated[str, typer.Option(help="Format to write.")] = "parquet",
    mode: Annotated[
        str, typer.Option(help="If there is something already: error, append or overwrite.")
    ] = "error",
    corrections: Annotated[
        bool,
        typer.Option(
            "--corrections",
            help="Also the kept rows, with weights that make published totals exact.",
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="The query's checkpoint.",
            show_default="the folder around STATE_DIR",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    index: Annotated[
        int | None, typer.Option(help="Which source, if the query reads several.", min=0)
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE: a setting of Spark, such as spark.jars.packages. Repeat."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Bring back the rows that a guard shed, from the source that still holds them.

    The source is read again over the offsets of the batches, and the gate is inverted with the
    plans of that time: what comes is exactly what was shed, with its batch and keep rate. The
    number is compared with the books. Rows that an operator refused, and what windows and subtasks
    gave up, do not come back.

    Ends with 0 if all shed rows were found, with 1 if some are missing (it says which; the others
    are written), with 2 if an argument makes no sense, with 3 if what is needed is not retained or
    Spark failed.

    Examples:

    - `spillway replay /checkpoints/rides/spillway --batches 120-180 --format kafka
      --option kafka.bootstrap.servers=broker:9092 --to /data/late-rides`

    - `spillway replay /checkpoints/rides/spillway --batches 7 --format parquet --json`
    """
    from spillway.state.past import NotRetained, batch_ids

    if mode not in ("error", "append", "overwrite"):
        raise typer.BadParameter(f"--mode must be error, append or overwrite, got {mode!r}")
    try:
        wanted, options, settings = batch_ids(batches), _pairs(option), _pairs(conf)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error

    # pyspark loads here, after the checks
    from spillway.java import JavaNotFound
    from spillway.spark.replay_run import Order, ReplayFailed, checkpoint_of, imported, run
    from spillway.spark.retained import Retained
    from spillway.spark.session import local_session

    folder = state.absolute()
    try:
        order = Order(
            state=folder,
            checkpoint=checkpoint.absolute() if checkpoint else checkpoint_of(folder),
            batches=wanted,
            source=Retained(
                format=source,
                options=options,
                schema=schema,
                prepare=imported(prepare) if prepare else None,
                index=index,
            ),
            corrections=corrections,
            to=to,
            to_format=to_format,
            mode=mode,
        )
        outcome = run(local_session("spillway-replay", cores="*", config=settings), order)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except (NotRetained, ReplayFailed, JavaNotFound) as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(3) from error
    for line in (*outcome.remarks, *outcome.told):
        typer.secho(line, err=True)
    told = (
        f"{outcome.batches} batches: {outcome.rows_found:,} of {outcome.rows_booked:,} shed rows "
        f"{f'written to {to}' if to else 'found'}"
    )
    typer.echo(json.dumps(_content(outcome, to), indent=2) if as_json else told)
    raise typer.Exit(0 if outcome.complete else 1)


def _content(outcome: Outcome, to: str) -> dict[str, object]:
    return {
        "batches": outcome.batches,
        "rows_found": outcome.rows_found,
        "rows_booked": outcome.rows_booked,
        "complete": outcome.complete,
        "written_to": to or None,
        "remarks": [*outcome.remarks, *outcome.told],
    }


def _pairs(given: list[str] | None) -> dict[str, str]:
    """Options as a dictionary, or an error that names the one that is no pair."""
    pairs = [text.partition("=") for text in given or []]
    wrong = [name for name, equals, _ in pairs if not equals or not name]
    if wrong:
        raise ValueError(f"options must be NAME=VALUE, got {wrong[0]!r}")
    return {name: value for name, _, value in pairs}
