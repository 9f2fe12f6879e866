"""`ProgressBar`: a bar on a terminal, plain lines elsewhere."""

import sys

import pytest

from examples.common.progress import ProgressBar


def lines_of(capsys):
    return capsys.readouterr().out.splitlines()


def test_a_log_file_gets_ten_plain_lines_and_the_end(capsys):
    bar = ProgressBar(1005, "image", ["nll"])
    for step in range(0, 1000, 5):
        bar.add(5, values=[("nll", 0.25 * step)])
    bar.add(5, values=[("nll", 123456.0)])
    lines = lines_of(capsys)
    assert lines[0] == "image 5 of 1,005 - nll: 0"
    assert lines[1] == "image 100 of 1,005 - nll: 23.75"
    assert lines[-1] == "image 1,005 of 1,005 - nll: 123456"
    assert len(lines) == 12
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(("every", "expected"), [(4, ["0", "4", "8", "10"]), (100, ["0", "10"])])
def test_interval_of_lines(every, expected, capsys):
    bar = ProgressBar(10, "step", every=every)
    for step in range(11):
        bar.update(step)
    assert [line.split()[1] for line in lines_of(capsys)] == expected


def test_a_resumed_run_starts_where_it_was(capsys):
    bar = ProgressBar(10, "step", every=4)
    bar.update(7)
    bar.update(8)
    assert [line.split()[1] for line in lines_of(capsys)] == ["7", "8"]


def test_a_terminal_gets_a_bar(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    bar = ProgressBar(2, "step", ["loss"])
    bar.update(2, [("loss", 0.5)])
    assert "━" in (text := capsys.readouterr().out) and "loss: 0.5000" in text
