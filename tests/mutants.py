"""Mutants: small errors, each of which a test must notice. Run by `make mutants`.

Each mutant changes one place in a copy of the library and runs the nearest tests until one of them
fails. A test that fails must pass without the mutant. `tests/mutants.txt` has the list, and
`python -m tests.mutants --match sampler.py` runs the mutants of files with this name.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import functools
import gc
import io
import multiprocessing
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
# An endless loop is noticed, too.
_MOST_SECONDS_OF_FEW_TESTS = 200
_MOST_SECONDS = 1800


class Mutant(NamedTuple):
    """One change.

    Attributes:
      file: Path of the file below `tfp_lars`.
      old: Text that occurs in it exactly once.
      new: Text to put there.
      tests: Path of the tests below `tests/library`.
      expression: The tests in this file to try first, for the `-k` of pytest; empty for all.
      survives: Why no test can notice the change; empty if one must.
    """

    file: str
    old: str
    new: str
    tests: str
    expression: str
    survives: str


def read_mutants(text: str) -> list[Mutant]:
    """Returns the mutants of a list in the format that `tests/mutants.txt` describes."""
    mutants = []
    file = tests = ""
    for paragraph in text.split("\n\n"):
        lines = {mark: [] for mark in "#@-+?="}
        for line in paragraph.strip("\n").split("\n"):
            lines[line[0]].append(line[2:])
        if lines["@"]:
            file, tests = lines["@"][0].split()
        if lines["-"]:
            old, new, expression, why = ("\n".join(lines[mark]) for mark in "-+?=")
            mutants.append(Mutant(file, old, new, tests, expression, why))
    return mutants


MUTANTS = read_mutants((ROOT / "tests" / "mutants.txt").read_text())


def run(mutant: Mutant) -> str:
    """Runs the tests of a mutant and returns the first that fails, or an empty text."""
    path = f"tests/library/{mutant.tests}"
    failed = _first_failure(mutant, [path, "-k", mutant.expression]) if mutant.expression else ""
    failed = failed or _first_failure(mutant, [path])
    if "::" in failed and _fails_anyway(failed):
        raise RuntimeError(f"{failed} fails without a mutant.")
    return failed


@functools.cache
def _fails_anyway(test: str) -> str:
    return _first_failure(None, [test])


def _first_failure(mutant: Mutant | None, arguments: list[str]) -> str:
    """Runs pytest in a fork of this process, which has TensorFlow imported already."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for name in ("tfp_lars", "tests"):
            shutil.copytree(ROOT / name, copy / name)
        for name in ("examples", "pyproject.toml"):
            (copy / name).symlink_to(ROOT / name)
        if mutant is not None:
            path = copy / "tfp_lars" / mutant.file
            path.write_text(path.read_text().replace(mutant.old, mutant.new))
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_test, args=(copy, arguments, sender))
        process.start()
        process.join(_MOST_SECONDS_OF_FEW_TESTS if "-k" in arguments else _MOST_SECONDS)
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)  # also the processes that a test has started
            process.join()
            return "the tests do not end"
        if receiver.poll():
            return receiver.recv()
        if process.exitcode >= 0:
            raise RuntimeError(f"pytest does not run with {arguments}.")
        return f"the process ends with signal {-process.exitcode}"


def _test(copy: pathlib.Path, arguments: list[str], sender) -> None:
    import pytest

    failed = []

    class Recorder:
        def pytest_runtest_logreport(self, report):
            failed.extend([report.nodeid] if report.failed else [])

        def pytest_collectreport(self, report):
            failed.extend([report.nodeid] if report.failed else [])

    os.setsid()
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    sys.path.insert(0, str(copy))
    # The package of the tests is this one, which is imported from the original.
    for name in [n for n in sys.modules if n.split(".")[0] in ("tests", "tfp_lars")]:
        del sys.modules[name]
    options = ["-x", "--assert=plain", "-p", "no:cacheprovider", f"--rootdir={copy}"]
    with contextlib.redirect_stdout(io.StringIO()):
        code = pytest.main([*options, *arguments], plugins=[Recorder()])
    if code in (0, 1, 2):  # all passed, a test failed, a test or an import ended the session
        sender.send(failed[0] if failed else "" if code == 0 else "the session was interrupted")
    sender.close()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--match", default="", help="pattern for the path and the text")
    parser.add_argument("--jobs", type=int, default=2, help="mutants to run at a time (default: 2)")
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Imports only: TensorFlow does not survive a fork after its first op.
    import keras  # noqa: F401
    import scipy.stats  # noqa: F401
    import tensorflow_probability as tfp
    import tf_keras  # noqa: F401

    _ = tfp.distributions.Normal, tfp.bijectors.Chain  # loaded lazily
    gc.freeze()  # pytest collects garbage often

    def timed_run(mutant):
        start = time.monotonic()
        return mutant, run(mutant), time.monotonic() - start

    chosen = [m for m in MUTANTS if re.search(arguments.match, f"{m.file}: {m.old}")]
    survivors = unexplained = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        futures = [pool.submit(timed_run, mutant) for mutant in chosen]
        for number, future in enumerate(concurrent.futures.as_completed(futures), start=1):
            mutant, failed, seconds = future.result()
            survivors += not failed
            unexplained += not failed and not mutant.survives
            what = failed or ("SURVIVES: " + (mutant.survives or "no test notices it"))
            old, new = (" ".join(text.split()) or "nothing" for text in (mutant.old, mutant.new))
            print(
                f"{number}/{len(chosen)} {mutant.file}: {old} -> {new}\n"
                f"    {what} ({seconds:.0f} s)",
                flush=True,
            )
    print(
        f"{len(chosen)} mutants, {len(chosen) - survivors} noticed, {survivors} survive, "
        f"{unexplained} of them without an explanation"
    )
    sys.exit(bool(unexplained))


if __name__ == "__main__":
    main()
