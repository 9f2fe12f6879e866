"""The package as a whole: its layers, its examples in docstrings and README, its wheel."""

import ast
import doctest
import importlib
import io
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap
import tokenize
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from packaging.version import Version

import tfp_lars
from tests.mutants import MUTANTS

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "tfp_lars"
MODULES = sorted(
    ".".join(p.relative_to(PACKAGE).with_suffix("").parts)
    for p in PACKAGE.rglob("*.py")
    if p.stem != "__init__"
)

# What each module may import from the package. `normalizer` and `proposals` are packages whose
# files may import each other.
BASE = {"_arguments", "_compat", "_seeds"}
LAYERS = {
    "_arguments": set(),
    "_compat": set(),
    "_keras_backend": set(),
    "_nested": set(),
    "_points": {"_compat"},
    "_proposal_checks": {"_compat", "_proposal_draws"},
    "_seeds": {"_compat"},
    "_stores": {"_compat"},
    "_traced_once": {"_compat"},
    "density": set(),
    "ownership": {"_compat"},
    "sampler": {"_arguments", "_compat", "_stores"},
    "_proposal_draws": {"_compat", "_nested"},
    "_run_sampler": {"_compat", "_proposal_draws", "_traced_once", "sampler"},
    "acceptance": {*BASE, "ownership"},
    "_describable": set(),
    "proposals": {*BASE, "_describable", "ownership"},
    "normalizer": {*BASE, "_proposal_draws", "_traced_once", "density"},
    "resampled": {
        *BASE,
        "_run_sampler",
        "_nested",
        "_points",
        "_proposal_checks",
        "acceptance",
        "density",
        "normalizer",
        "ownership",
    },
    "_network_config": set(),
    "_saved_estimate": {"normalizer"},
    "_shared_parts": {"_compat"},
    "_description": {
        "_describable",
        "_network_config",
        "_saved_estimate",
        "_shared_parts",
        "normalizer",
        "resampled",
    },
    "_rebuilding": {
        "_describable",
        "_description",
        "_network_config",
        "_saved_estimate",
        "_shared_parts",
        "normalizer",
    },
    "keras_layer": {"_compat", "_description", "_rebuilding", "normalizer", "ownership"},
    "saving": {"_description", "_rebuilding"},
    "_plotting": set(),
    "_fit_samples": set(),
    "_fit_evaluation": {"_compat", "_nested", "normalizer", "resampled"},
    "_fit_training": {"_compat", "_fit_samples", "acceptance", "ownership", "resampled"},
    "_fit_figures": {"_plotting"},
    "_fit_result": {"_fit_figures", "resampled"},
    "tradeoff": {
        "_arguments",
        "_fit_evaluation",
        "_fit_result",
        "_fit_samples",
        "_plotting",
        "density",
        "normalizer",
        "resampled",
    },
    "fit": {
        "_arguments",
        "_fit_evaluation",
        "_fit_result",
        "_fit_samples",
        "_fit_training",
        "_seeds",
        "normalizer",
        "ownership",
        "resampled",
    },
}


# Private attributes that a file reads of objects that it does not define. `_compat` may read any.
FOREIGN = {
    "_proposal_checks": {"_experimental_tangent_space"},  # TFP's hook, which has no public name
    "_proposal_draws": {"_call_sample_n"},  # shows whether a subclass draws in its own way
    "_run_sampler": {"_replace"},  # public in named tuples
    "_saved_estimate": {"_fields"},  # likewise
}


def path_of(module: str) -> pathlib.Path:
    return (PACKAGE / module.replace(".", "/")).with_suffix(".py")


def foreign_private_names(source: str) -> set[str]:
    """Private names that a file imports, or reads of other objects and does not define itself.

    `self._name`, `cls._name` and `super()._name` are not foreign. Neither is `other._name` if the
    file defines or assigns `_name` somewhere: `other` may be an object of a class in this file.
    """
    modules = {path.stem for path in PACKAGE.rglob("*.py")}
    defined, used = set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.ImportFrom):
            used |= {alias.name for alias in node.names if alias.name not in modules}
        elif isinstance(node, ast.Attribute):
            if ast.unparse(node.value) not in ("self", "cls", "super()"):
                used.add(node.attr)
            elif isinstance(node.ctx, ast.Store):
                defined.add(node.attr)
    return {name for name in used - defined if re.match("_[^_]", name)}


def code_lines(source: str) -> int:
    """Number of lines with code. Docstrings, comments and blank lines do not count."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.string.strip() and token.type != tokenize.COMMENT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def imported_modules(tree: ast.AST) -> set[str]:
    """Returns the first part of the name of each module of the package that a module imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "tfp_lars":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tfp_lars."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("tfp_lars.")}
    return found


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_downwards(name):
    tree = ast.parse(path_of(name).read_text())
    part = name.split(".")[0]
    assert imported_modules(tree) - {part} <= LAYERS[part]


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"_compat"}))
def test_no_private_names_of_other_files(name):
    assert foreign_private_names(path_of(name).read_text()) == FOREIGN.get(name, set())


def test_foreign_private_names_are_found():
    source = """
        from tfp_lars.density import _log1mexp, log_ratio
        from tfp_lars import _seeds

        class A:
            def __init__(self, other):
                self._own = other._own + self._inherited
                other._read, other.part()._called(), other.__dict__
                other._assigned = 1
        """
    found = foreign_private_names(textwrap.dedent(source))
    assert found == {"_log1mexp", "_read", "_called", "_assigned"}


@pytest.mark.parametrize(("folder", "most"), [("tfp_lars", 300), ("examples", 400)])
def test_files_are_short(folder, most):
    lengths = {str(p): code_lines(p.read_text()) for p in (ROOT / folder).rglob("*.py")}
    assert lengths and {path: n for path, n in lengths.items() if n > most} == {}


def test_only_code_counts_as_code_lines():
    source = '''
        # A comment.

        def f():
            """A docstring

            of three lines."""
            return (1,
                    2)  # and a comment
        '''
    assert code_lines(textwrap.dedent(source)) == 3


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(f"tfp_lars.{name}")
    names = {n: getattr(tfp_lars, n) for n in tfp_lars.__all__}
    names |= {"tf": tf, "tfp": tfp, "tfd": tfp.distributions, "np": np, "keras": keras}
    result = doctest.testmod(module, extraglobs=names)
    assert result.failed == 0


@pytest.mark.parametrize("module", [tfp_lars, tfp_lars.proposals])
def test_public_names_have_docstrings_with_examples(module):
    for name in set(module.__all__) - {"proposals"}:
        assert ">>> " in getattr(module, name).__doc__, name


def test_version_is_the_same_everywhere():
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{tfp_lars.__version__}"' in project
    assert f"version: {tfp_lars.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_oldest_versions_are_the_lower_bounds():
    project = (ROOT / "pyproject.toml").read_text()
    project = project[project.index("\ndependencies = ") : project.index("\n# `nodejs`")]
    bounds = {
        name: Version(bound)
        for name, bound in re.findall(r'"([\w-]+)(?:\[\w+\])?>=([\d.]+)', project)
        if not name.startswith("mkdoc")  # the site, which no test builds
    }
    oldest = (ROOT / "tests" / "oldest.txt").read_text()
    pins = re.findall(r"^([\w-]+)==(\S+)$", oldest, flags=re.MULTILINE)
    assert {name: Version(pin) for name, pin in pins} == bounds


def test_wheel_holds_the_library_alone_and_works_where_it_is_installed(tmp_path):
    source = tmp_path / "source"  # a build writes files into its tree
    shutil.copytree(ROOT / "tfp_lars", source / "tfp_lars")
    shutil.copytree(ROOT / "tests", source / "tests")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    # `-I`: pip would take a checkout in PYTHONPATH for an installed package.
    pip = ["-I", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, *pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, source], check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {n.split("/")[0].split("-")[0] for n in names} == {"tfp_lars"}
    assert "tfp_lars/py.typed" in names

    # A folder that comes before the packages of this environment, and so before its tfp_lars.
    installed = tmp_path / "installed"
    subprocess.run(
        [sys.executable, *pip, "install", "--no-deps", "--target", installed, wheel], check=True
    )
    code = (
        f"import sys; sys.path.insert(0, {str(installed)!r});"
        "import tfp_lars, tensorflow_probability as tfp; d = tfp.distributions;"
        "x = tfp_lars.Resampled(d.Normal(0., 1.), tfp_lars.AcceptanceNetwork()).sample(3, seed=1);"
        "print(tfp_lars.__file__, x.shape)"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert str(installed) in run.stdout
    assert "(3,)" in run.stdout


def test_mutants_change_one_place_each():
    for mutant in MUTANTS:
        assert (PACKAGE / mutant.file).read_text().count(mutant.old) == 1, mutant
        assert mutant.new != mutant.old
        assert (ROOT / "tests" / "library" / mutant.tests).is_file(), mutant
