"""The description of a machine says what matters for a result, and not whose machine it is."""

import json
import platform

from examples.common import cores, machine


def test_description_is_json_without_the_name_of_the_machine():
    found = machine.describe()
    assert found["cores"] == cores.available()
    assert found["python"] == platform.python_version()
    assert found["processor"]
    assert set(found) == {"processor", "cores", "threads", "system", "python"}
    assert json.loads(json.dumps(found)) == found


def test_values_are_read_from_lines_with_a_colon(tmp_path):
    file = tmp_path / "info"
    file.write_text("model\t\t: 7\nmodel name\t: A: B\nmodel name\t: C\n")
    assert machine.first_value(str(file), "model name") == "A: B"
    assert machine.first_value(str(file), "memory") == ""
    assert machine.first_value(str(tmp_path / "none"), "model name") == ""
