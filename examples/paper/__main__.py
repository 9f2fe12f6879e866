"""Runs the command that makes the paper's tables and figures."""

from examples.common import command_line
from examples.paper import command

command_line.run(command.main, interrupted=command_line.RESUMES)
