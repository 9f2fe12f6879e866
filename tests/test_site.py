"""The documentation site: every page is in the navigation, every public name in the reference."""

import pathlib
import re

import pytest

import tfp_lars

ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / "docs"


def test_navigation_lists_every_page_once():
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    listed = re.findall(r"[\w/]+\.(?:md|ipynb)", navigation)
    pages = [
        p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*") if p.suffix in (".md", ".ipynb")
    ]
    assert sorted(listed) == sorted(pages)


@pytest.mark.parametrize("module", [tfp_lars, tfp_lars.proposals])
def test_reference_has_every_public_name(module):
    reference = re.findall(r"^::: ([\w.]+)$", (DOCS / "reference.md").read_text(), re.MULTILINE)
    names = {name.split(".")[-1] for name in reference}
    # `ResampledDistribution` is another name of `Resampled`.
    assert set(module.__all__) - {"proposals", "ResampledDistribution"} <= names


def test_tutorials_and_home_page_link_to_each_other():
    home = (DOCS / "index.md").read_text()
    for path in (DOCS / "tutorials").glob("*.ipynb"):
        assert f"tutorials/{path.name}" in home


def test_doctests_are_fenced_in_the_reference():
    """Markdown would read the prompt as a quotation."""
    pytest.importorskip("griffe", reason="needs the extra docs")
    from site_tools.fence_doctests import fenced

    text = "Adds.\n\n>>> 1 + 1\n2\n\nMore.\n\n  >>> x\n"
    expected = "Adds.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore.\n\n  ```pycon\n  >>> x\n  ```\n"
    assert fenced(text) == expected


def test_style_sheets_exist():
    listed = re.search(r"^extra_css: \[(.*)\]$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    for name in listed[1].split(", "):
        assert (DOCS / name).is_file()
