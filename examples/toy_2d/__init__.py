"""The paper's 2-D study: `python -m examples.toy_2d`."""
