"""Runs the 2-D study."""

from examples.common import command_line
from examples.toy_2d import command

command_line.run(command.main)
