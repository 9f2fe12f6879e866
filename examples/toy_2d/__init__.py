"""The paper's study in the plane: `python -m examples.toy_2d`."""
