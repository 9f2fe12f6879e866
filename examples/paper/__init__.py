"""Tables and figures of the paper: `python -m examples.paper`."""
