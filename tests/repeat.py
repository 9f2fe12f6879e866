"""Repeats the tests with other seeds and in another order each time: `python -m tests.repeat`.

Run n passes `--vary-seed n` to pytest, and the same seed to Hypothesis. The first run that fails
ends the command with exit code 1 and its output. The runs that passed are written to a file, so
that the same command resumes after Ctrl-C, SIGTERM or SIGKILL. It starts again if any file of the
clone has changed. Arguments that this command does not know are passed to pytest.
"""

import argparse
import pathlib
import subprocess
import sys

from examples.common import command_line, files
from tests import resuming

ROOT = pathlib.Path(__file__).parents[1]


def run(seed, arguments):
    """Runs the tests once and returns the completed process."""
    command = [sys.executable, "-m", "pytest", "--vary-seed", str(seed)]
    command += ["--hypothesis-profile", "varied", "--hypothesis-seed", str(seed), *arguments]
    return subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def main(arguments=None):
    """Runs the tests until all runs have passed or one fails. Exits with 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.repeat", description=__doc__)
    parser.add_argument("--runs", type=command_line.positive, default=20, help="number of runs")
    parser.add_argument(
        "--first", type=int, default=1, help="seed of the first run; the others follow it"
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("out/repeat.json"), help="file of results"
    )
    options, rest = parser.parse_known_args(arguments)
    identity = {"code": resuming.code(options.out), "arguments": rest}
    passed = resuming.earlier_results(options.out, identity, "passed")  # last line, by seed
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for seed in range(options.first, options.first + options.runs):
        if str(seed) in passed:
            print(f"seed {seed}: passed before, {passed[str(seed)]}", flush=True)
            continue
        process = run(seed, rest)
        last = process.stdout.strip().rpartition("\n")[2]
        if process.returncode:
            print(process.stdout)
            print(f"seed {seed}: FAILED, {last}", flush=True)
            sys.exit(1)
        passed[str(seed)] = last
        files.write_json(options.out, {"identity": identity, "passed": passed})
        print(f"seed {seed}: {last}", flush=True)
    print(f"{options.runs} of {options.runs} runs passed")


if __name__ == "__main__":
    command_line.run(main, interrupted="the same command resumes after the last complete run")
