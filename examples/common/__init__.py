"""Shared code of the examples: command line, cores, figures, quadrature."""
