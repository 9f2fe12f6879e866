"""Runs the trainings and figures of a study, each in its own process, several in parallel.

Finished runs are reused and interrupted runs resume. A failed run does not stop the others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from examples.common import child, command_line, cores, files, locks
from examples.common.command_line import UserError
from examples.paper import report, step_time
from examples.paper.kinds import Figure
from examples.paper.results import Results
from examples.paper.run import Run
from examples.paper.study import Study
from examples.vae import run_directory
from examples.vae.config import Config
from examples.vae.run_directory import RunDirectory, State

ROOT = pathlib.Path(__file__).parents[2]
TRAIN = "examples.vae.train"
LOG_FILE = "log.txt"
_PATIENCE = 15.0  # seconds that a child has to stop before it is killed


@dataclasses.dataclass
class Task:
    """A process for a training or a figure. It starts after the tasks that it needs."""

    name: str
    needs: tuple[str, ...]
    directory: pathlib.Path
    log: pathlib.Path
    run: Run | None = None
    figure: Figure | None = None
    log_start: int = 0  # size of the log of earlier attempts, in bytes


def tasks(study: Study) -> list[Task]:
    """Returns the tasks of a study, each after the tasks that it needs."""
    found = []
    for run in study.runs:
        directory = study.runs_dir / run.name
        needs = () if run.base is None else (run.base.name,)
        found.append(Task(run.name, needs, directory, directory / LOG_FILE, run=run))
    for figure in study.figures:
        needs = tuple(run.at(study.seed).name for run in figure.runs)
        if study.only and not (needs and set(needs) <= {task.name for task in found}):
            continue
        name = study.figure_name(figure)
        found.append(Task(name, needs, study.out, study.out / f"{name}.log", figure=figure))
    return found


def environment(
    slot: int, jobs: int, gpus: Sequence[str], cores: int, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Returns the environment of a child process, which gets one GPU or a share of the cores.

    Args:
      slot: Index of the child, from 0 to `jobs - 1`.
      jobs: Number of children that run in parallel.
      gpus: Names for `CUDA_VISIBLE_DEVICES`. Empty without a GPU.
      cores: Number of cores of this machine.
      inherited: Environment to start from. Its thread settings take precedence.
    """
    found = dict(inherited)
    found["PYTHONPATH"] = os.pathsep.join(
        part for part in (str(ROOT), inherited.get("PYTHONPATH")) if part
    )
    if gpus:
        found["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
        if jobs > len(gpus):  # else one child takes all the memory of a shared GPU
            found.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    else:
        found |= threads(jobs, cores, inherited)
    return found


def threads(jobs: int, cores: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """Returns the thread settings of one of several children on a CPU; empty for a single child.

    Args:
      jobs: Number of children that run in parallel.
      cores: Number of cores of this machine.
      inherited: Environment, whose thread settings take precedence.
    """
    if jobs == 1:
        return {}
    share = str(max(1, cores // jobs))
    names = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    return {name: inherited.get(name, share) for name in names}


def visible_gpus() -> list[str]:
    """Returns the names of the GPUs that TensorFlow sees, as in `CUDA_VISIBLE_DEVICES`."""
    command_line.import_tensorflow()
    import tensorflow as tf

    count = len(tf.config.list_physical_devices("GPU"))
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return named[:count] if len(named) >= count else [str(i) for i in range(count)]


class Runner:
    """Runs the tasks of a study, up to `jobs` in parallel, and prints their progress."""

    def __init__(self, study: Study, jobs: int):
        self.study, self.jobs = study, jobs
        self.pending = tasks(study)
        self.total = len(self.pending)
        self.running: dict[int, tuple[Task, subprocess.Popen, float]] = {}  # by slot
        self.done: dict[str, bool] = {}  # by name of the task, whether it succeeded
        self.waiting: set[str] = set()  # names of tasks that another process runs
        self.gpus = visible_gpus()
        self.cores = cores.available()

    def run(self) -> bool:
        """Runs all tasks and returns whether all of them succeeded."""
        try:
            while self.pending or self.running:
                for task in list(self.pending):
                    free = set(range(self.jobs)) - self.running.keys()
                    ready = free and all(name in self.done for name in task.needs)
                    if ready and self.begin(task, min(free)):
                        self.pending.remove(task)
                self.collect()
        finally:
            self.stop()
        return all(self.done.values())

    def begin(self, task: Task, slot: int) -> bool:
        """Starts a task, unless it is already finished or cannot run.

        Returns:
          decided: `False` if another process trains the same run, so that the task has to wait.
        """
        missing = [name for name in task.needs if not self.done[name]]
        if missing:
            return self.end(task, False, f"not started: it needs {', '.join(missing)}")
        said = "started"
        if task.run is not None:
            state = self.study.state(task.run)
            if state.kind == run_directory.FINISHED:
                return self.end(task, True, f"finished before, {_summary(state)}")
            if state.kind == run_directory.REFUSED:
                text = f"refused: {state.reason}: name another --out, or delete {task.directory}"
                return self.end(task, False, text)
            if state.kind != run_directory.NOT_RUN:
                said = f"started again, {state.reason}"
        elif self.study.figure_numbers(task.figure) is not None:
            return self.end(task, True, "drawn before")
        return self.start(task, slot, said)

    def start(self, task: Task, slot: int, said: str) -> bool:
        """Starts the process of a task. Returns `False` if it has to wait for another process."""
        locked = []
        try:
            task.directory.mkdir(parents=True, exist_ok=True)
            if task.run is not None:
                # The child holds the lock as long as it lives. The child of a killed runner needs a
                # moment to end, and another command may use the same output directory.
                locked = [locks.take(task.directory)]
                if locked == [None]:
                    return self.wait(task)
            inherited = environment(slot, self.jobs, self.gpus, self.cores, os.environ)
            if locked:
                inherited[locks.INHERITED] = str(locked[0])
            command = self.command(task)
            RunDirectory(task.directory).failure_file.unlink(missing_ok=True)
            with task.log.open("a") as log:
                task.log_start = log.tell()
                process = child.start(
                    command[0],
                    command[1:],
                    env=inherited,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C must reach it only through the runner
                    pass_fds=locked,
                )
        except UserError as error:  # such as missing data, or a directory that is refused
            message = " ".join(str(error).split())
            self.record_failure(task, message)
            return self.end(task, False, f"not started: {message}")
        except OSError as error:
            raise UserError(
                f"cannot write to {task.directory} ({error.strerror}): free some space there, or "
                "name another --out."
            ) from error
        finally:
            for lock in locked:
                if lock is not None:
                    os.close(lock)
        self.running[slot] = task, process, time.monotonic()
        self.say(task, f"{said} (log: {task.log})")
        return True

    def wait(self, task: Task) -> bool:
        if task.name not in self.waiting:
            self.waiting.add(task.name)
            pid = locks.holder(task.directory)
            self.say(task, f"waits for process {pid}, which trains in {task.directory}")
        return False

    def command(self, task: Task) -> list[str]:
        """Returns the module and arguments of a task."""
        if task.run is None:
            return self.study.figure_command(task.figure)
        return [TRAIN, *self.study.prepare(task.run)]

    def collect(self, interval: float = 0.1) -> None:
        """Handles the children that have ended."""
        for slot, (task, process, start) in list(self.running.items()):
            if process.poll() is None:
                continue
            process.stdin.close()
            del self.running[slot]
            took = step_time.readable(time.monotonic() - start)
            problem = self.problem(task, process.returncode)
            if problem is None:
                state = None if task.run is None else self.study.state(task.run)
                summary = "" if state is None else f", {_summary(state)}"
                self.end(task, True, f"finished in {took}{summary}")
            else:
                self.end(task, False, f"failed after {took}: {problem} (log: {task.log})")
        if self.running or self.pending:
            time.sleep(interval)

    def problem(self, task: Task, exit_code: int) -> str | None:
        """Returns the reason for a failure in one line and records it; `None` on success."""
        if exit_code == 0 and task.run is None:
            return None
        if exit_code == 0:
            state = self.study.state(task.run)
            if state.kind == run_directory.FINISHED:
                return None
            message = f"it ended without a result ({state.reason})"
        else:
            message = last_line(task.log, task.log_start) or f"exit code {exit_code}"
        if exit_code < 0:
            message = f"killed by {signal.Signals(-exit_code).name}"
        self.record_failure(task, message)
        return message

    def record_failure(self, task: Task, message: str) -> None:
        """Writes the reason to the directory of a run, so that the tables can show it."""
        if task.run is not None:
            with contextlib.suppress(OSError):  # a full disk, about which the message is
                task.directory.mkdir(parents=True, exist_ok=True)
                files.write_json(RunDirectory(task.directory).failure_file, {"message": message})

    def end(self, task: Task, well: bool, text: str) -> bool:
        self.done[task.name] = well
        self.say(task, text)
        return True

    def say(self, task: Task, text: str) -> None:
        print(f"[{len(self.done)}/{self.total}] {task.name}: {text}", flush=True)

    def stop(self) -> None:
        """Stops all children. SIGTERM comes first, so that they finish what they are writing."""
        processes = [process for _, process, _ in self.running.values()]
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + _PATIENCE
        for process in processes:
            try:
                process.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdin.close()
        self.running.clear()


def last_line(log: pathlib.Path, start: int = 0) -> str:
    """Returns the last error in a log after byte `start`, else its last non-empty line."""
    text = log.read_bytes()[start:].decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or [""])[-1]


def _summary(state: State) -> str:
    m = state.metrics
    return f"NLL {m['nll']:.2f} ± {m['nll_stderr']:.2f}" if m else state.reason


def render(study: Study) -> str:
    """Writes the tables and figures of all finished runs and returns their text."""
    results = Results(study)
    head = report.header(study.preset, study.tables, results)
    parts = [head]
    try:
        study.out.mkdir(parents=True, exist_ok=True)
        for table in study.tables:
            text = report.markdown(table, study.preset, results)
            parts.append(text)
            _write(study.out / f"{table.name}.md", f"{head}\n{text}")
            _write(study.out / f"{table.name}.csv", report.csv_text(table, results))
        for figure in study.figures:
            numbers = study.figure_numbers(figure)
            name = study.figure_name(figure)
            where = f"{name}.png" if figure.runs else f"{name}/"
            text = report.figure_markdown(figure, numbers, where)
            if numbers is not None and not figure.runs:  # its command writes a table, too
                text += "\n" + (study.out / name / "table.md").read_text()
            parts.append(text)
            _write(study.out / f"{name}.md", text)
        _write(study.out / "results.md", "\n".join(parts))
    except OSError as error:
        raise UserError(f"cannot write to {study.out} ({error.strerror}).") from error
    return "\n".join(parts)


def _write(path: pathlib.Path, text: str) -> None:
    files.write(path, text.encode())


def dry_run(study: Study, jobs: int) -> None:
    """Prints the runs and their expected durations, from timing a few steps of each kind."""
    costs: dict[Config, step_time.Costs] = {}
    seconds: dict[Run, float] = {}
    for run in study.runs:
        state = study.state(run)
        if state.kind in (run_directory.FINISHED, run_directory.REFUSED):
            print(f"{run.name}: {state.reason}", flush=True)
            continue
        config = study.config(run)
        kind = step_time.kind(config)
        if kind not in costs:
            costs[kind] = step_time.measure(kind)
        done = study.directory(run).last_step() or 0
        seconds[run] = step_time.seconds(costs[kind], config, steps_done=done)
        print(
            f"{run.name}: {state.reason}, about {step_time.readable(seconds[run])}, "
            f"{1000 * costs[kind].step:.3g} ms a step",
            flush=True,
        )
    for figure in study.figures:
        drawn = "drawn" if study.figure_numbers(figure) else "not drawn"
        print(f"{study.figure_name(figure)}: {drawn}")
    total = sum(seconds.values())
    text = f"{len(study.runs)} runs, about {step_time.readable(total)} one after the other"
    if jobs > 1:
        at_a_time = min(jobs, len(visible_gpus()) or cores.available())
        chains = [seconds[run] + seconds.get(run.base, 0.0) for run in seconds]
        parallel = max([total / at_a_time, *chains])
        text += f", {step_time.readable(parallel)} with --jobs {jobs}"
    print(f"{text}. The estimates assume that the machine stays as busy as it is.")


def reproduce(study: Study, jobs: int = 1) -> bool:
    """Runs what is not finished, renders everything, and returns whether all runs succeeded."""
    well = Runner(study, jobs).run()
    print(f"\n{render(study)}")
    return well
