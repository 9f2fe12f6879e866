"""The layout of the examples: which part may import which, and how long a file may be."""

import ast
import io
import pathlib
import tokenize

import pytest

import tfp_lars

ROOT = pathlib.Path(__file__).parents[2]
FILES = sorted((ROOT / "examples").rglob("*.py"))
MOST_CODE_LINES = 400

# What each part may import from the others. Tables know of VAEs, not the other way round.
PARTS = {
    "common": {"common"},
    "toy_2d": {"common", "toy_2d"},
    "vae": {"common", "vae"},
    "paper": {"common", "vae", "paper"},
}


def name_of(path):
    return str(path.relative_to(ROOT / "examples"))


def imported(tree):
    """Dotted names of what a file imports: modules, and names from modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def code_lines(text):
    """Number of lines that are not blank, comment or docstring."""
    docstrings = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            docstrings |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    blank = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENDMARKER,
    }  # fmt: skip
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in blank:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_file_is_short_and_imports_only_what_it_may(path):
    text = path.read_text()
    assert code_lines(text) <= MOST_CODE_LINES
    part = path.relative_to(ROOT / "examples").parts[0]
    for name in imported(ast.parse(text)):
        package, *rest = name.split(".")
        if package == "examples":
            assert rest[0] in PARTS[part], name
            assert not any(word.startswith("_") for word in rest), name
        elif package == "tfp_lars" and rest:  # as an outside user would
            assert rest[0] in tfp_lars.__all__, name


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_file_reads_private_names_of_another(path):
    """`self._x` and `cls._x` are a file's own; so is `_x` of what it defines."""
    tree = ast.parse(path.read_text())
    modules = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            private = node.attr.startswith("_") and not node.attr.startswith("__")
            allowed = {("os", "_exit")}
            if private and (node.value.id, node.attr) not in allowed:
                assert node.value.id not in modules, f"{node.value.id}.{node.attr}"
