"""Runs the command that adds runs to the store and renders the results."""

from examples.common import command_line
from examples.paper.store import command

command_line.run(
    command.main, interrupted="the files written so far are complete, the same command continues"
)
