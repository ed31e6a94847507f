"""`batonpass demo`: a real job on a real broker, and what happens to it when its workers come, go, crash and drain."""

import asyncio
import json
import logging
import shutil
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from batonpass.cli.client_context import failing_well
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.folder import default_folder
from batonpass.cli.listening import end_in_order
from batonpass.client import ApiError
from batonpass.demo.demo_run import DemoRun
from batonpass.demo.experiment import NoRest
from batonpass.demo.infrastructure import CoordinatorNotStarted
from batonpass.demo.report import write_report
from batonpass.demo.sizes import LONG, QUICK, HandoverMode
from batonpass.demo.tables import bars, run_table
from batonpass.demo.view import view_for
from batonpass.demo.workers import WorkerLost
from batonpass.kafka.broker_parts import BrokerUnavailable
from batonpass.postgres.binaries import EmbeddedPostgresError
from batonpass.terminal import say, screen


def demo(
    policy: Annotated[
        HandoverMode,
        typer.Option(help="warm: a task moves when its new owner has caught up; eager: at once, for comparison."),
    ] = HandoverMode.WARM,
    quick: Annotated[bool, typer.Option("--quick", help="Run the short form: about two minutes, not ten.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="A folder for figures, pictures and logs; created if missing."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the files of the broker, the database and the workers.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end, and nothing else.")
    ] = False,
) -> None:
    """Show what a handover costs: real workers with real state on a real Kafka broker, measured.

    Nothing needs to run beforehand, and nothing is left running. The exit code is 1 if a record is missing or
    duplicated, or (with --policy warm) if more or fewer tasks moved than necessary.
    """
    with failing_well(as_json=as_json):
        folder = (out or default_folder().with_name("batonpass-demo") / time.strftime("%Y%m%d-%H%M%S")).absolute()
        _make(folder)
        _quiet_libraries(folder)
        run = DemoRun(
            QUICK if quick else LONG,
            policy,
            folder=folder / "work",
            logs=folder / "logs",
            view=view_for(as_json=as_json),
        )
        end_in_order()
        try:
            asyncio.run(run.run())
        except (BrokerUnavailable, EmbeddedPostgresError) as error:
            raise Failure(Exit.REFUSED, str(error)) from None
        except (CoordinatorNotStarted, WorkerLost, NoRest, ApiError) as error:
            raise Failure(Exit.REFUSED, f"{error}.", todo=f"{folder / 'logs'} has the logs of all processes.") from None
        finally:
            files = write_report(run, folder)
            if not keep:
                shutil.rmtree(folder / "work", ignore_errors=True)
        if as_json:
            say(json.dumps(run.figures.body()))
        else:
            _show(run, files)
        figures = run.figures
        needless = [one.name for one in figures.phases if one.moves != one.moves_needed]
        if not figures.is_clean or (needless and policy is HandoverMode.WARM):
            raise typer.Exit(Exit.REFUSED)


def _show(run: DemoRun, files: list[Path]) -> None:
    console = screen(plain_width=220)
    console.print(run_table(run.figures))
    for bar in bars(run.figures):
        mark = ("reached", "green") if bar.held else ("missed ", "bold red")
        console.say(Text.assemble(mark, f"  {bar.text}: {bar.seen}"))
    console.print("\nFiles of this run:")
    for file in files:
        console.say(f"  {file}")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The database does not run as root, and has to get through to its own folder.
        folder.chmod(0o711)
        (folder / "logs").mkdir(exist_ok=True)
    except OSError as error:
        raise Failure(
            Exit.REFUSED,
            f"cannot use {folder}: {error.strerror or error}.",
            todo="With --out, name a folder that you can write to.",
        ) from None


def _quiet_libraries(folder: Path) -> None:
    """Write the Kafka client's log to a file: the terminal is for the demonstration."""
    logging.basicConfig(
        filename=folder / "logs" / "demo.log", level="WARNING", format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
