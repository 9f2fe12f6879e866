"""What the examples share: command line, cores, figures, quadrature."""
