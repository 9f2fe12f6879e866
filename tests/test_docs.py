"""Tests that the Python code in README and docs runs and that links are valid."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_runs(page, tmp_path, monkeypatch):
    """The code blocks of a page run in order, in one namespace."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(code, page.name, "exec"), names)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "examples" / "README.md"], ids=lambda p: p.name)
def test_links_lead_to_files(page):
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert missing == []


def test_readme_can_be_read_at_once():
    assert (ROOT / "README.md").read_text().count("\n") <= 130


def messages():
    """Returns the string literals of the library. A formatted value is a `{}`."""
    for path in (ROOT / "tfp_lars").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(
                    getattr(part, "value", "") if isinstance(part, ast.Constant) else "{}"
                    for part in node.values
                )


def test_messages_under_troubleshooting_are_those_of_the_library():
    table = (ROOT / "docs" / "troubleshooting.md").read_text()
    rows = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)[2:]
    known = " ".join(messages())
    missing = []
    for row in rows:
        parts = [part.strip(" ,") for part in row.split("...")]
        missing += [(row, part) for part in parts if part and part not in known]
    assert len(rows) > 15 and missing == []
