"""Command line of the benchmarks."""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
from collections.abc import Sequence

from benchmarks import machine, report
from benchmarks.arena import Settings
from benchmarks.cases import CASES
from examples.common import command_line, files


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs cases, prints the table of goals and writes the report."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compares the speed and memory of tfp_lars with alternatives.",
    )
    parser.add_argument("--quick", action="store_true", help="rough run, in minutes")
    parser.add_argument(
        "--only",
        action="append",
        choices=CASES,
        metavar="CASE",
        help="run only this case; can be repeated",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("out/benchmarks"),
        metavar="DIR",
        help="directory for report.md, results.json and charts (default: %(default)s)",
    )
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    args = parser.parse_args(arguments)
    if args.list:
        for name, case in CASES.items():
            print(f"{name:12} {case.__doc__.splitlines()[0]}")
        return
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"argument --out: {error}")
    run(
        [n for n in CASES if n in (args.only or CASES)], args.out, "quick" if args.quick else "full"
    )


def run(names: Sequence[str], out: pathlib.Path, size: str) -> None:
    """Runs cases by name and writes the report after each, so that partial runs keep results."""
    settings = Settings(size)
    about = machine.describe(settings.threads)
    results = []
    for i, name in enumerate(names):
        start = time.perf_counter()
        results.append(CASES[name].run(settings))
        write(out, results, about, size)
        seconds = time.perf_counter() - start
        settings.show(f"[{i + 1} of {len(names)}] {name}: done in {seconds:.0f} s")
    if sys.stderr.isatty():
        print(file=sys.stderr)  # ends the progress line
    print(f"{report.goals_table(results)}\n\n{report.summary(results)}\nDetails: {out}/report.md")


def write(out: pathlib.Path, results: Sequence, about: dict[str, str], size: str) -> None:
    """Writes Markdown, JSON and charts."""
    from benchmarks import charts  # imported here because matplotlib loads slowly

    with files.explained(out):
        files.write(out / "report.md", report.markdown(results, about, size).encode())
        report.write_json(out / "results.json", results, about, size)
        charts.draw_goals(out / "goals.png", results)
        if any(result.curves for result in results):
            charts.draw_growth(out / "growth.png", results)


if __name__ == "__main__":
    command_line.run(main, interrupted="the report has the cases that were done")
