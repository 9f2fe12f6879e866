"""Seeds and order of the tests, and the command that repeats them."""

import math
import os
import shutil
import signal
import subprocess
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import config as tf_config

from examples.common import command_line, files
from examples.common.command_line import UserError
from tests import conftest, memory, repeat, resuming, soak
from tests.seeding import set_random_seed


def numbers():
    return np.array(keras.random.normal([3]))


def numbers_of_the_seed(request):
    set_random_seed(1 + request.config.getoption("--vary-seed"))
    return numbers()


@pytest.fixture(scope="module")
def shared():
    return numbers()


def test_shared_fixtures_have_the_seed(shared, request):
    np.testing.assert_array_equal(shared, numbers_of_the_seed(request))


def test_shared_fixtures_use_up_no_numbers_of_a_test(shared, request):
    np.testing.assert_array_equal(numbers(), numbers_of_the_seed(request))


@pytest.mark.parametrize("number", [1, 2])
def test_determinism_ends_with_the_test_that_enabled_it(number):
    assert not tf_config.is_op_determinism_enabled()
    tf.config.experimental.enable_op_determinism()


def in_order(number, sizes):
    items = [
        types.SimpleNamespace(path=conftest.TESTS / file, test=test)
        for file, size in sizes.items()
        for test in range(size)
    ]
    config = types.SimpleNamespace(
        getoption={"--vary-seed": number}.get,
        pluginmanager=types.SimpleNamespace(hasplugin=lambda name: False),
    )
    conftest.pytest_collection_modifyitems(config, items)
    return [(item.path.name, item.test) for item in items]


def test_seed_shuffles_files_and_their_tests():
    sizes = dict.fromkeys("abcdefgh", 9)
    first, second = (in_order(number, sizes) for number in (1, 2))
    assert first == in_order(1, sizes)
    assert first != second
    assert sorted(first) == sorted(second) == in_order(0, sizes)
    for order in (first, second):
        files = [file for file, _ in order]
        assert files[::9] != sorted(sizes)
        assert files == [file for file in files[::9] for _ in range(9)]
        assert [test for _, test in order[:9]] != list(range(9))


def test_long_files_come_first():
    *_, last = conftest.LONGEST
    for name in conftest.LONGEST:
        assert (conftest.TESTS / name).is_file()
    found = in_order(0, {"a": 2, last: 1, "b": 1, conftest.LONGEST[0]: 1})
    assert [test for _, test in found] == [0, 0, 0, 1, 0]
    assert [name for name, _ in found[2:]] == ["a", "a", "b"]
    assert conftest.LONGEST[0].endswith(found[0][0])


class Runs:
    """Replaces `repeat.run`. It records the seeds, and one of them fails."""

    def __init__(self, fails=None):
        self.fails, self.seeds = fails, []

    def __call__(self, seed, arguments):
        self.seeds.append(seed)
        failed = seed == self.fails
        text = f"...\n{int(failed)} failed in {seed} s\n"
        return subprocess.CompletedProcess(arguments, int(failed), text)


def test_repetition_stops_at_a_failure_and_resumes(monkeypatch, tmp_path, capsys):
    command = ["--runs", "3", "--out", str(tmp_path / "new" / "repeat.json"), "-k", "law"]

    def run(fails=None, arguments=command):
        runs = Runs(fails)
        monkeypatch.setattr(repeat, "run", runs)
        if fails is None:
            repeat.main(arguments)
        else:
            with pytest.raises(SystemExit, match="1"):
                repeat.main(arguments)
        return runs.seeds, capsys.readouterr().out

    seeds, out = run(fails=2)
    assert seeds == [1, 2]
    assert "seed 1: 0 failed in 1 s\n" in out
    assert out.endswith("...\n1 failed in 2 s\n\nseed 2: FAILED, 1 failed in 2 s\n")
    seeds, out = run()
    assert seeds == [2, 3]
    assert "seed 1: passed before, 0 failed in 1 s\n" in out
    assert out.endswith("3 of 3 runs passed\n")
    assert run()[0] == []
    # Passed runs count for other ranges of seeds.
    assert run(arguments=["--first", "3", *command])[0] == [4, 5]
    # Other tests and other code start again, and so does code that cannot be identified.
    assert run(arguments=[*command[:-1], "sampler"])[0] == [1, 2, 3]
    for code in ("another", None):
        monkeypatch.setattr(resuming, "code", lambda out, code=code: {"changes": code})
        assert run()[0] == [1, 2, 3]
    assert run()[0] == [1, 2, 3]


def git(root, *arguments):
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_every_change_of_the_code_has_another_identity(tmp_path):
    """`git describe --dirty` is the same for all edits, and does not see new files."""
    out = tmp_path / "results.json"
    assert resuming.code(out, tmp_path)["changes"] is None  # no clone
    git(tmp_path, "init", "--quiet")
    (tmp_path / "a.py").write_text("1")
    (tmp_path / ".gitignore").write_text("*.pyc")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    found = [resuming.code(out, tmp_path)["changes"]]
    for name, content in (("a.py", "2"), ("a.py", "3"), ("b.py", ""), ("b.py", "4"), ("c.py", "4")):
        (tmp_path / name).write_text(content)
        found.append(resuming.code(out, tmp_path)["changes"])
    assert len(set(found)) == 6 and None not in found
    # Ignored files and the results are no code.
    for path in (out, tmp_path / "a.pyc"):
        path.write_text("5")
        assert resuming.code(out, tmp_path)["changes"] == found[-1]


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (repeat.main, ["--runs", "0"]),
        (repeat.main, ["--runs", "-3"]),
        (soak.main, ["--draws", "nan"]),
        (soak.main, ["--draws", "inf"]),
        (soak.main, ["--draws", "-1"]),
    ],
)
def test_no_runs_and_no_draws_are_refused(main, arguments, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--out", str(tmp_path / "out.json")])
    assert f"argument {arguments[0]}: must be " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_memory_that_cannot_be_measured_is_an_error(monkeypatch):
    monkeypatch.setattr(memory, "resident_megabytes", lambda: float("nan"))
    with pytest.raises(UserError, match="the memory cannot be measured"):
        memory.main(["--calls", "0", "--distributions", "0"])


def test_resident_memory_is_that_of_the_system():
    resource = pytest.importorskip("resource")
    if math.isnan(memory.resident_megabytes()):
        pytest.skip("no /proc")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    assert 0.2 * peak < memory.resident_megabytes() < 1.01 * peak


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_the_repetition_and_the_soak_which_resume(
    number, monkeypatch, tmp_path, capsys
):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    out, done = tmp_path / "results.json", []

    def second_is_hit(result):
        def function(*args):
            if len(done) == 1:
                os.kill(os.getpid(), number)
                raise AssertionError("the signal was ignored")
            done.append(args)
            return result

        return function

    passed = subprocess.CompletedProcess([], 0, "passed")
    monkeypatch.setattr(repeat, "run", second_is_hit(passed))
    monkeypatch.setattr(soak, "smallest_p_value", second_is_hit((0.5, 32)))
    monkeypatch.setattr(soak, "configurations", lambda seed: (name * 4 for name in ("a", "b")))
    try:
        for module, name in ((repeat, "passed"), (soak, "results")):
            done.clear()
            with pytest.raises(SystemExit) as stop:
                command_line.run(lambda module=module: module.main(["--out", str(out)]), "resumes")
            assert stop.value.code == 128 + number
            found = capsys.readouterr()
            what = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[number]
            assert found.err == f"{what}: resumes\n"
            assert len(files.read_json(out)[name]) == 1
    finally:
        signal.signal(signal.SIGINT, before)
    # The soak prints what it has.
    assert found.out.endswith("smallest p-value 0.5, limit 3.3e-10: 0 of 1 configurations failed\n")
    done.append("no signal")
    monkeypatch.setattr(soak, "smallest_p_value", lambda *args: (0.25, 32))
    soak.main(["--out", str(out)])
    assert "0 of 2 configurations failed" in capsys.readouterr().out


def test_seed_is_passed_to_pytest_and_hypothesis(monkeypatch):
    found = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: found.extend(command))
    repeat.run(5, ["-x"])
    assert found[3:] == [
        *("--vary-seed", "5", "--hypothesis-profile", "varied", "--hypothesis-seed", "5", "-x")
    ]
