"""Kills processes at many moments while they write a checkpoint, and restores what is left.

    python -m tests.examples.killed_checkpoints DIRECTORY

Prints one line of JSON for each moment: the restored values, and those after another save. Each
process is a fork of this one, which has imported TensorFlow but not used it.
"""

import json
import os
import pathlib
import resource
import signal
import sys
import traceback
import types

import tensorflow as tf

from examples.vae import checkpoints
from examples.vae.run_directory import RunDirectory

SIZE = 1000  # numbers in each variable
SHARES = (0.0, 0.3, 0.9, 0.999)  # of the file that are written before the process ends


class Model:
    """Two variables with the same value, so that a mixture of checkpoints shows."""

    def __init__(self):
        self.variables = [tf.Variable(tf.zeros([SIZE])) for _ in range(2)]
        self.optimizer = types.SimpleNamespace(variables=[])

    def assign(self, value):
        for variable in self.variables:
            variable.assign(tf.fill([SIZE], float(value)))

    def values(self):
        return sorted({float(x) for variable in self.variables for x in variable.numpy()})


def save(run, *, before_last):
    """Saves 1, 2 and 3. Calls a function before the last one."""
    model = Model()
    manager = checkpoints.manager(run, model)
    for value in (1, 2, 3):
        model.assign(value)
        if value == 3:
            before_last()
        manager.save(checkpoint_number=value)
    sys.setprofile(None)


def kill_at_state(path, number):
    """Sends SIGKILL to this process as soon as the files have changed `number` times."""
    states = []

    def look(frame, event, arg):
        if event in ("c_call", "c_return"):
            state = sorted((str(p), p.stat().st_size) for p in path.rglob("*"))
            if not states or states[-1] != state:
                states.append(state)
            if len(states) > number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(look)


def end_after(num_bytes):
    """Lets the kernel end this process when a file exceeds a size: in the middle of a write."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))


def in_child(function):
    """Runs a function in a child process. Returns its signal, or 0."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            function()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def resume(run, answer):
    """Restores what is left, saves again and restores that. Writes the values to a file."""
    model, again = Model(), Model()
    manager = checkpoints.manager(run, model)
    found = {"restored": checkpoints.resume(manager), "first": model.values()}
    found["left"] = sorted(path.name for path in pathlib.Path(manager.directory).iterdir())
    model.assign(4)
    manager.save(checkpoint_number=4)
    checkpoints.restore(checkpoints.manager(run, again))
    answer.write_text(json.dumps({**found, "second": again.values()}))


def attempt(run, before_last, answer):
    """Ends a process in its third save, and resumes. Returns `None` if the save was completed."""
    ended_by = in_child(lambda: save(run, before_last=lambda: before_last(run)))
    if not ended_by:
        return None
    in_child(lambda: resume(run, answer))
    return {"signal": ended_by, **json.loads(answer.read_text())}


def main(directory):
    answer = directory / "answer.json"

    def show(name, before_last):
        found = attempt(RunDirectory(directory / name), before_last, answer)
        if found is not None:
            print(json.dumps({"moment": name, **found}), flush=True)
        return found is not None

    number = 0
    while show(f"state {number}", lambda run, n=number: kill_at_state(run.path, n)):
        number += 1
    for share in SHARES:
        num_bytes = int(share * 8 * SIZE)  # the variables make up nearly all of the file
        show(f"{num_bytes} bytes of a file", lambda run, n=num_bytes: end_after(n))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
