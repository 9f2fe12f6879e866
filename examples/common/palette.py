"""The colors of all figures, as matplotlib names them."""

DENSITY, ACCEPTANCE = "Blues", "Reds"  # maps
LINES = ("tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:brown", "tab:olive")
MEAN = "tab:red"
CLASSES = tuple(f"C{i}" for i in range(10))
