"""`spillway dashboard` and `spillway metrics`: the live page, and the numbers for Prometheus."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

Folders = Annotated[
    list[Path],
    typer.Argument(
        metavar="STATE_DIR...",
        help="State folders of guards, or folders above some; they need not exist yet.",
        show_default=False,
    ),
]
Host = Annotated[
    str, typer.Option(help="Address to serve on. Others than this machine need a token.")
]
Token = Annotated[
    str | None,
    typer.Option(
        help="Who knows it may look; at least 16 characters. Drawn at random if none is given.",
        envvar="SPILLWAY_TOKEN",
        show_default=False,
    ),
]
NoToken = Annotated[
    bool, typer.Option("--no-token", help="Let everybody on this machine look; no other address.")
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="A further name by which the page may be called. Repeat."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(dashboard)
    app.command()(metrics)


def dashboard(
    folders: Folders,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to serve on; 0 takes a free one.")] = 8377,
    token: Token = None,
    no_token: NoToken = False,
    allow_host: Allow = None,
) -> None:
    """Show guarded queries live in the browser: is the objective held, what is given up, and why.

    Reads the ledgers in the state folders and changes nothing. Prints the address, which holds the
    token. Also serves /metrics. Ends with Ctrl-C; with 2 if an argument makes no sense or the extra
    `dashboard` is not installed.

    Example: spillway dashboard /checkpoints/rides/spillway
    """
    _run(folders, host, port, token, no_token, allow_host, page=True)


def metrics(
    folders: Folders,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to serve on; 0 takes a free one.")] = 9377,
    token: Token = None,
    no_token: NoToken = False,
    allow_host: Allow = None,
) -> None:
    """Serve the guards' numbers for Prometheus at /metrics, and nothing else.

    Prometheus sends the token as its bearer: `authorization: {credentials: TOKEN}`. Ends with
    Ctrl-C; with 2 if an argument makes no sense or the extra `dashboard` is not installed.

    Example: spillway metrics /checkpoints --no-token
    """
    _run(folders, host, port, token, no_token, allow_host, page=False)


def _run(
    folders: list[Path],
    host: str,
    port: int,
    token: str | None,
    no_token: bool,
    allow: list[str] | None,
    *,
    page: bool,
) -> None:
    try:
        from spillway.dashboard.serve import Place, server_of
    except ModuleNotFoundError as error:
        raise typer.BadParameter(
            f"{error.name} is missing: pip install 'spillway-spark[dashboard]'"
        ) from error
    if no_token and token:
        raise typer.BadParameter("--no-token and --token contradict each other")
    try:
        place = Place.of(
            host=host, port=port, token="" if no_token else token or None, allow=allow or ()
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    server = server_of([folder.absolute() for folder in folders], place, page=page)
    typer.echo(place.url if page else f"{place.address}metrics")
    if not page and place.access.token:
        typer.echo(f"token: {place.access.token}", err=True)
    _quietly(lambda: server.run(sockets=[place.bound]))


def _quietly(run: Callable[[], None]) -> None:
    """Run until it is interrupted, which is no error."""
    try:
        run()
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
