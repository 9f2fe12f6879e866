"""Runs the command that draws one figure."""

from examples.common import command_line
from examples.paper.figures import command

command_line.run(command.main)
