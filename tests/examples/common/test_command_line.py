"""Tests of the commands: help with every default, one-line errors, a quiet TensorFlow."""

import argparse
import importlib
import os
import pathlib
import re
import subprocess
import sys

import pytest

from examples.common import command_line
from examples.paper import command as paper
from examples.paper.figures import command as figures
from examples.paper.store import command as store
from examples.toy_2d import command as toy_2d
from examples.vae import evaluate, train

ROOT = pathlib.Path(__file__).parents[3]
IMAGES_BY_A_FLOW = ["--dataset", "mnist", "--model", "output_vae", "--prior", "maf"]
COMMANDS = {
    "examples.toy_2d": (toy_2d, []),
    "examples.vae.train": (train, []),
    "examples.vae.evaluate": (evaluate, []),
    "examples.paper": (paper, []),
    "examples.paper.figures": (figures, []),
    "examples.paper.figures ranked": (figures, ["ranked"]),
    "examples.paper.figures z_trace": (figures, ["z_trace"]),
    "examples.paper.store": (store, []),
    "examples.paper.store add": (store, ["add"]),
    "examples.paper.store render": (store, ["render"]),
}


def python(*arguments, cwd=ROOT, **environment):
    kept = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_every_default_and_none_of_what_is_required(name, capsys):
    module, arguments = COMMANDS[name]
    with pytest.raises(SystemExit) as stop:
        module.main([*arguments, "--help"])
    assert stop.value.code == 0
    told = capsys.readouterr().out
    assert told.startswith(f"usage: python -m {name}")
    assert "None" not in told and "SUPPRESS" not in told
    options = re.split(r"\n  (?=-)", told.split("options:")[1])[1:]
    for option in options:
        first = option.split()[0]
        takes_a_value = re.match(r"--\S+ +(\{|[A-Z])", option)
        required = re.search(rf"(?<!\[){re.escape(first)} ", told.split("\n\n")[0])
        optional = first in ("--post-hoc", "--continue-from", "--config", "--dataset", "--out")
        if takes_a_value and not required and not optional:
            assert "(default: " in " ".join(option.split()), option


def test_defaults_that_a_configuration_has_are_shown_as_one_would_type_them():
    parser = command_line.Parser("x", "A command.")
    parser.add_argument("--units", default=argparse.SUPPRESS, shown_default=(20, 30), help="sizes")
    parser.add_argument("--share", default="50%")
    told = " ".join(parser.format_help().split())
    assert "--units UNITS sizes (default: 20-30)" in told
    assert "--share SHARE (default: 50%)" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["examples.vae.train", "--dataset", "mnits", "--out", "x"], "invalid choice: 'mnits'"),
        (
            ["examples.vae.train", *IMAGES_BY_A_FLOW, "--out", "x"],
            "--model output_vae resamples images",
        ),
        (
            ["examples.vae.train", "--dataset", "mnist", "--out", "x", "--post-hoc", "nowhere"],
            "nowhere holds no run",
        ),
        (["examples.vae.evaluate", "nowhere"], "nowhere holds no run"),
        (["examples.toy_2d", "--out", "x", "--T", "0"], "--T: must be at least 1, got 0"),
        (["examples.toy_2d", "--out", "x", "--T", "2147483648"], "--T: must be at most 2147483647"),
        (["examples.paper", "table10", "--preset", "smoke", "--out", "x"], "unknown table"),
        (["examples.paper.figures", "ranked", "--run", "x", "--out", "x"], "must end in .png"),
        (["examples.paper.store", "add", "nowhere"], "nowhere holds no runs"),
    ],
)
def test_wrong_argument_is_told_in_one_line_before_tensorflow_is_imported(
    arguments, message, tmp_path
):
    """Puts a `tensorflow` module that cannot be imported on the path."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tensorflow.py").write_text("raise RuntimeError('imported')")
    path = os.pathsep.join([str(tmp_path / "broken"), str(ROOT)])
    done = python("-m", *arguments, cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert lines[-1].startswith("error: ") and message in lines[-1]
    assert len(lines) == 1 or arguments[0] == "examples.paper"  # which also lists the tables
    assert [p.name for p in tmp_path.iterdir()] == ["broken"]


@pytest.mark.parametrize(("level", "silent"), [(None, True), ("1", True), ("0", False)])
def test_start_up_lines_of_tensorflow_are_not_shown_unless_asked_for(level, silent):
    code = (
        "from examples.common import command_line; command_line.import_tensorflow();"
        "import tensorflow as tf; tf.config.list_physical_devices(); print(tf.constant(1) + 1)"
    )
    done = python("-c", code, **({} if level is None else {"TF_CPP_MIN_LOG_LEVEL": level}))
    assert done.returncode == 0
    if level == "1":  # the user asked for warnings and errors
        assert "oneDNN" not in done.stderr
    else:
        assert (done.stderr == "") == silent, done.stderr


def test_other_lines_and_a_failing_import_are_shown(tmp_path):
    (tmp_path / "tensorflow.py").write_text(
        "import os\n"
        "os.write(2, b'I0000 00:00:17.5 1 port.cc:153] oneDNN custom operations are on.\\n')\n"
        "os.write(2, b'something else\\n')\n"
        "raise RuntimeError('no luck')\n"
    )
    code = "from examples.common import command_line; command_line.import_tensorflow()"
    done = python("-c", code, PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert done.returncode == 1
    assert "oneDNN" not in done.stderr
    assert done.stderr.startswith("something else\n") and "no luck" in done.stderr


@pytest.mark.parametrize(
    ("level", "end", "shown"),
    [("3", "pass", "other\n"), ("0", "os._exit(0)", "I0000 00:00:17.5 1 a.cc:1] on\nother\n")],
)
def test_early_log_is_filtered_by_its_level(level, end, shown):
    """At level 0 nothing is held back, not even until a sudden end."""
    code = (
        "import os\n"
        "from examples.common import command_line\n"
        "with command_line.early_log_filtered():\n"
        "    os.write(2, b'I0000 00:00:17.5 1 a.cc:1] on\\nother\\n')\n"
        f"    {end}\n"
    )
    assert python("-c", code, TF_CPP_MIN_LOG_LEVEL=level).stderr == shown


@pytest.mark.parametrize(
    ("arguments", "package"),
    [
        (["examples.vae.train", "--dataset", "mnist5k", "--out", "x"], "matplotlib"),
        (["examples.toy_2d", "--out", "x"], "matplotlib"),
        (["examples.paper", "table1", "--preset", "smoke", "--out", "x"], "matplotlib"),
        (["examples.paper.figures", "ranked", "--run", "x", "--out", "x.png"], "matplotlib"),
    ],
)
def test_a_missing_package_is_named_with_the_extra(arguments, package, tmp_path):
    """Hides the package, as after `pip install .`. The help must work without it."""
    code = f"""
import runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("matplotlib", "PIL", "scipy", "mlxtend"):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
find_spec = __import__("importlib.util").util.find_spec
def without(name, package=None):
    return None if name in ("matplotlib", "scipy") else find_spec(name, package)
__import__("importlib.util").util.find_spec = without
sys.argv = sys.argv[1:]
runpy.run_module({arguments[0]!r}, run_name="__main__", alter_sys=True)
"""
    done = python("-c", code, *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        f'error: {package} is not installed: pip install ".[examples]" installs all that they '
        "need.\n"
    )
    done = python("-c", code, arguments[0], "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_a_package_that_is_missing_on_the_way_is_named_as_well(capsys):
    def main():
        importlib.import_module("matplotlib.no_such_part")

    with pytest.raises(SystemExit) as stop:
        command_line.run(main)
    assert stop.value.code == 2
    assert 'pip install ".[examples]"' in capsys.readouterr().err

    def other():
        importlib.import_module("no_such_package")

    with pytest.raises(ModuleNotFoundError):
        command_line.run(other)


@pytest.mark.parametrize(
    ("module", "promise"),
    [
        ("examples.vae.train", "the same command resumes from the last checkpoint"),
        ("examples.paper", "the same command resumes from the last checkpoint"),
        ("examples.vae.evaluate", "nothing was written"),
        ("examples.toy_2d", "nothing was written"),
        ("examples.paper.figures", "nothing was written"),
    ],
)
def test_interrupt_promises_what_is_true(module, promise):
    code = f"""
import runpy
from examples.common import command_line

def interrupted(*args, **kwargs):
    raise KeyboardInterrupt

command_line.Parser.parse_args = interrupted
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
    done = python("-c", code)
    assert done.returncode == 130
    assert done.stderr == f"interrupted: {promise}\n"
