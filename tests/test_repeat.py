"""Seeds and order of the tests, and the command that repeats them."""

import subprocess
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import config as tf_config

from examples.common import revision
from tests import conftest, repeat
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
    # Other tests and other code start again.
    assert run(arguments=[*command[:-1], "sampler"])[0] == [1, 2, 3]
    monkeypatch.setattr(revision, "revision", lambda: "another")
    assert run()[0] == [1, 2, 3]


def test_seed_is_passed_to_pytest_and_hypothesis(monkeypatch):
    found = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: found.extend(command))
    repeat.run(5, ["-x"])
    assert found[3:] == [
        *("--vary-seed", "5", "--hypothesis-profile", "varied", "--hypothesis-seed", "5", "-x")
    ]
