"""Makes the paper's tables and figures, ours beside the paper's.

    python -m examples.reproduce table2 table5 --preset quick --out out/quick

Trains what they need (`examples.paper` lists it), each run a process of its own, and writes
`table2.md`, `table2.csv` and so on, and `results.md` with all of them. Runs that are finished are
used again, interrupted ones go on, and one that fails does not stop the rest: the same command
tries it once more. `all` is everything.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

from examples.common import command_line, cores
from examples.common.command_line import UserError
from examples.paper.experiments import experiments as paper
from examples.paper.experiments import report, step_time
from examples.vae import run_state
from examples.vae.run_state import State

ROOT = pathlib.Path(__file__).parents[2]
TRAIN = "examples.train"
LOG_FILE = "log.txt"
_PATIENCE = 15.0  # seconds that a child has to stop by itself


@dataclasses.dataclass(frozen=True)
class Study:
    """What to make, with which budget, and where.

    Attributes:
      tables: To render.
      figures: To draw.
      preset: The budget.
      out: Directory for everything; runs are in `out/runs`.
    """

    tables: Sequence[paper.Table]
    figures: Sequence[paper.Figure]
    preset: paper.Preset
    out: pathlib.Path

    @property
    def runs_dir(self) -> pathlib.Path:
        return self.out / "runs"

    @property
    def runs(self) -> list[paper.Run]:
        """All that is needed, each once, and after what it needs itself."""
        wanted = [run for part in (*self.tables, *self.figures) for run in part.runs]
        with_bases = [r for run in wanted for r in (run.base, run) if r is not None]
        return list(dict.fromkeys(with_bases))

    def arguments(self, run: paper.Run) -> list[str]:
        """Of `examples.train`."""
        return run.arguments(self.preset, str(self.runs_dir))

    def state(self, run: paper.Run) -> State:
        """What has become of a run that this study needs."""
        # TensorFlow is behind this: a wrong argument should not wait for it.
        from examples.vae import training as train

        config = train.config_of(train.parse(self.arguments(run))).to_json()
        evaluation = {
            name: getattr(self.preset, name)
            for name in ("iwae_samples", "z_samples", "test_images")
        }
        ignore = []
        if run.base is not None:
            base = self.state(run.base)
            if base.metrics is None:  # which networks it will have is not known yet
                ignore = ["post_hoc"]
            else:
                config["post_hoc"] = base.metrics["networks"]
        return run_state.state_of(self.runs_dir / run.name, config, evaluation, ignore)

    def figure_command(self, figure: paper.Figure) -> list[str]:
        """Module and arguments."""
        runs = [text for run in figure.runs for text in ("--run", str(self.runs_dir / run.name))]
        more = self.preset.figures.get(figure.name, ())
        out = self.out / (f"{figure.name}.png" if figure.runs else figure.name)
        return [figure.module, *runs, "--out", str(out), *more]

    def figure_numbers(self, figure: paper.Figure) -> Mapping | None:
        """What the figure's command wrote beside it, if that is up to date."""
        name = f"{figure.name}.json" if figure.runs else f"{figure.name}/results.json"
        try:
            found = json.loads((self.out / name).read_text())
            made = (self.out / name).stat().st_mtime
            inputs = [self.runs_dir / run.name / "metrics.json" for run in figure.runs]
            if any(path.stat().st_mtime > made for path in inputs):
                return None
        except (OSError, ValueError):
            return None
        command = shlex.join(["python", "-m", *self.figure_command(figure)])
        return found if found.get("command") == command else None


@dataclasses.dataclass
class Task:
    """A process to be run when the tasks it needs are done."""

    name: str
    needs: tuple[str, ...]
    module: str
    arguments: list[str]
    directory: pathlib.Path
    log: pathlib.Path
    run: paper.Run | None = None
    figure: paper.Figure | None = None
    log_start: int = 0  # bytes of earlier attempts


def tasks(study: Study) -> list[Task]:
    """In an order in which each comes after what it needs."""
    found = []
    for run in study.runs:
        directory = study.runs_dir / run.name
        found.append(
            Task(
                run.name,
                () if run.base is None else (run.base.name,),
                TRAIN,
                study.arguments(run),
                directory,
                directory / LOG_FILE,
                run=run,
            )
        )
    for figure in study.figures:
        module, *arguments = study.figure_command(figure)
        needs = tuple(run.name for run in figure.runs)
        log = study.out / f"{figure.name}.log"
        found.append(Task(figure.name, needs, module, arguments, study.out, log, figure=figure))
    return found


def environment(
    slot: int, jobs: int, gpus: Sequence[str], cores: int, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Environment of the child in a slot: a GPU of its own, or its share of the cores.

    Args:
      slot: From 0 to `jobs - 1`.
      jobs: How many children there are at a time.
      gpus: Names for `CUDA_VISIBLE_DEVICES`, none if there is no GPU.
      cores: Of this machine.
      inherited: The environment to start from; what it says of threads stays.
    """
    found = {"TF_CPP_MIN_LOG_LEVEL": "2", **inherited}
    found["PYTHONPATH"] = os.pathsep.join(
        part for part in (str(ROOT), inherited.get("PYTHONPATH")) if part
    )
    if gpus:
        found["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
        if jobs > len(gpus):  # or the first takes all the memory of one that they share
            found.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    elif jobs > 1:
        threads = str(max(1, cores // jobs))
        for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
            found.setdefault(name, threads)
    return found


def visible_gpus() -> list[str]:
    """Names of the GPUs that TensorFlow sees, as `CUDA_VISIBLE_DEVICES` spells them."""
    import tensorflow as tf

    count = len(tf.config.list_physical_devices("GPU"))
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return named[:count] if len(named) >= count else [str(i) for i in range(count)]


class Runner:
    """Runs the tasks of a study, some at a time, and says what comes of each in a line."""

    def __init__(self, study: Study, jobs: int):
        self.study, self.jobs = study, jobs
        self.pending = tasks(study)
        self.total = len(self.pending)
        self.running: dict[int, tuple[Task, subprocess.Popen, float]] = {}  # by slot
        self.done: dict[str, bool] = {}  # by name of the task, whether it went well
        self.gpus = visible_gpus()
        self.cores = cores.available()

    def run(self) -> bool:
        """Whether all went well."""
        try:
            while self.pending or self.running:
                for task in list(self.pending):
                    free = set(range(self.jobs)) - self.running.keys()
                    if free and all(name in self.done for name in task.needs):
                        self.pending.remove(task)
                        self.begin(task, min(free))
                self.collect()
        finally:
            self.stop()
        return all(self.done.values())

    def begin(self, task: Task, slot: int) -> None:
        """Starts a task, unless there is nothing to do or nothing can be done."""
        missing = [name for name in task.needs if not self.done[name]]
        if missing:
            self.end(task, False, f"not started: it needs {', '.join(missing)}")
            return
        said = "started"
        if task.run is not None:
            state = self.study.state(task.run)
            if state.kind == run_state.FINISHED:
                self.end(task, True, f"finished before, {_summary(state)}")
                return
            if state.kind == run_state.REFUSED:
                self.end(
                    task,
                    False,
                    f"refused: {state.told}: name another --out, or delete {task.directory}",
                )
                return
            if state.kind != run_state.NOT_RUN:
                said = f"started again, {state.told}"
        elif self.study.figure_numbers(task.figure) is not None:
            self.end(task, True, "drawn before")
            return
        try:
            task.directory.mkdir(parents=True, exist_ok=True)
            (task.directory / run_state.FAILURE_FILE).unlink(missing_ok=True)
            with task.log.open("a") as log:
                task.log_start = log.tell()
                child = subprocess.Popen(
                    [sys.executable, "-m", task.module, *task.arguments],
                    env=environment(slot, self.jobs, self.gpus, self.cores, os.environ),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches it by way of us
                )
        except OSError as error:
            raise UserError(
                f"cannot write to {task.directory} ({error.strerror}): free some space there, or "
                "name another --out."
            ) from error
        self.running[slot] = task, child, time.monotonic()
        self.say(task, f"{said} (log: {task.log})")

    def collect(self, interval: float = 0.1) -> None:
        """Sees which children have ended."""
        for slot, (task, child, start) in list(self.running.items()):
            if child.poll() is None:
                continue
            del self.running[slot]
            took = step_time.told(time.monotonic() - start)
            problem = self.problem(task, child.returncode)
            if problem is None:
                state = None if task.run is None else self.study.state(task.run)
                summary = "" if state is None else f", {_summary(state)}"
                self.end(task, True, f"finished in {took}{summary}")
            else:
                self.end(task, False, f"failed after {took}: {problem} (log: {task.log})")
        if self.running:
            time.sleep(interval)

    def problem(self, task: Task, exit_code: int) -> str | None:
        """What went wrong, in one line, kept in the directory of the run."""
        if exit_code == 0 and task.run is None:
            return None
        if exit_code == 0:
            state = self.study.state(task.run)
            if state.kind == run_state.FINISHED:
                return None
            message = f"it ended without a result ({state.told})"
        else:
            message = last_line(task.log, task.log_start) or f"exit code {exit_code}"
        if exit_code < 0:
            message = f"killed by {signal.Signals(-exit_code).name}"
        if task.run is not None:
            failure = {"message": message, "exit_code": exit_code}
            (task.directory / run_state.FAILURE_FILE).write_text(json.dumps(failure) + "\n")
        return message

    def end(self, task: Task, well: bool, text: str) -> None:
        self.done[task.name] = well
        self.say(task, text)

    def say(self, task: Task, text: str) -> None:
        print(f"[{len(self.done)}/{self.total}] {task.name}: {text}", flush=True)

    def stop(self) -> None:
        """Ends all children; a training that is asked to stop leaves its last checkpoint."""
        for _, child, _ in self.running.values():
            child.send_signal(signal.SIGINT)
        deadline = time.monotonic() + _PATIENCE
        for _, child, _ in self.running.values():
            try:
                child.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self.running.clear()


def last_line(log: pathlib.Path, start: int = 0) -> str:
    """Of a log from some byte on: the error of the command, else the last line with any text."""
    text = log.read_bytes()[start:].decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or [""])[-1]


def _summary(state: State) -> str:
    m = state.metrics
    return f"NLL {m['nll']:.2f} ± {m['nll_stderr']:.2f}" if m else state.told


def render(study: Study) -> str:
    """Writes the tables from what is finished; returns the text of all of them."""
    results = report.Results(study.runs_dir, {run.name: study.state(run) for run in study.runs})
    head = report.header(study.preset, results)
    parts = [head]
    try:
        study.out.mkdir(parents=True, exist_ok=True)
        for table in study.tables:
            text = report.markdown(table, results)
            parts.append(text)
            (study.out / f"{table.name}.md").write_text(f"{head}\n{text}")
            (study.out / f"{table.name}.csv").write_text(report.csv_text(table, results))
        for figure in study.figures:
            numbers = study.figure_numbers(figure)
            text = report.figure_markdown(figure, numbers)
            if numbers is not None and not figure.runs:  # it has a table of its own
                text += "\n" + (study.out / figure.name / "table.md").read_text()
            parts.append(text)
            (study.out / f"{figure.name}.md").write_text(text)
        (study.out / "results.md").write_text("\n".join(parts))
    except OSError as error:
        raise UserError(f"cannot write to {study.out} ({error.strerror}).") from error
    return "\n".join(parts)


def dry_run(study: Study, jobs: int) -> None:
    """Lists the runs and how long they would take; a few steps of each sort are timed."""
    costs: dict[paper.Run, step_time.Costs] = {}
    total = 0.0
    for run in study.runs:
        state = study.state(run)
        if state.kind in (run_state.FINISHED, run_state.REFUSED):
            print(f"{run.name}: {state.told}", flush=True)
            continue
        kind = step_time.kind(run)
        if kind not in costs:
            costs[kind] = step_time.measure(kind, study.preset)
        done = run_state.last_step(study.runs_dir / run.name) or 0
        left = step_time.seconds(costs[kind], run, study.preset, steps_done=done)
        total += left
        print(
            f"{run.name}: {state.told}, about {step_time.told(left)}, "
            f"{1000 * costs[kind].step:.3g} ms a step",
            flush=True,
        )
    for figure in study.figures:
        print(f"{figure.name}: {'not drawn' if not study.figure_numbers(figure) else 'drawn'}")
    told = f"{len(study.runs)} runs, about {step_time.told(total)} one after the other"
    if jobs > 1 and visible_gpus():
        told += f", {step_time.told(total / min(jobs, len(visible_gpus())))} with --jobs {jobs}"
    print(f"{told}. Times are those of a machine as busy as it was just now.")


def choose(names: Iterable[str]) -> tuple[list[paper.Table], list[paper.Figure]]:
    """Tables and figures by name, in the paper's order."""
    known = {**paper.TABLES, **paper.FIGURES}
    names = list(names)
    unknown = [name for name in names if name not in known and name != "all"]
    if unknown:
        for name, part in known.items():
            print(f"  {name:17} {part.title}", file=sys.stderr)
        raise UserError(
            f"unknown table {', '.join(map(repr, unknown))}: choose from {', '.join(known)}, or all"
        )
    wanted = known if "all" in names else names
    return (
        [table for name, table in paper.TABLES.items() if name in wanted],
        [figure for name, figure in paper.FIGURES.items() if name in wanted],
    )


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.reproduce",
        description=__doc__.split("\n\n")[0],
        epilog="tables and figures: " + ", ".join([*paper.TABLES, *paper.FIGURES, "all"]),
    )
    add = parser.add_argument
    add("names", nargs="+", metavar="TABLE", help="table1 to table9, a figure, or all")
    add("--preset", required=True, choices=paper.PRESETS, help="the budget")
    add("--out", type=pathlib.Path, required=True, help="directory for runs, tables and figures")
    add("--jobs", type=command_line.positive, default=1, help="runs at a time (default: 1)")
    add("--data-dir", help="where the data sets are (default: $TFP_LARS_DATA_DIR)")
    add("--dry-run", action="store_true", help="list the runs and how long they would take")
    add("--as-is", action="store_true", help="render from what is finished, run nothing")
    return parser.parse_args(arguments)


def reproduce(study: Study, jobs: int = 1) -> bool:
    """Runs what is not finished and renders everything; whether all went well."""
    well = Runner(study, jobs).run()
    print(f"\n{render(study)}")
    return well


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    study = Study(*choose(args.names), paper.PRESETS[args.preset], args.out)
    if args.data_dir is not None:
        os.environ["TFP_LARS_DATA_DIR"] = args.data_dir  # for the children
    if args.dry_run:
        cores.share()  # as the children do
        dry_run(study, args.jobs)
    elif args.as_is:
        print(render(study))
    else:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop the children, too
        if not reproduce(study, args.jobs):
            print("error: not everything went well, see above", file=sys.stderr)
            sys.exit(1)


if __name__ == "__main__":
    command_line.run(main)
