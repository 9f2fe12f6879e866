"""Colors of all figures, by their matplotlib names."""

DENSITY, ACCEPTANCE = "Blues", "Reds"  # color maps
LINES = ("tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:brown", "tab:olive")
MEAN = "tab:red"
CLASSES = tuple(f"C{i}" for i in range(10))
