"""Runs the study in the plane."""

from examples.common import command_line
from examples.toy_2d import command

command_line.run(command.main)
