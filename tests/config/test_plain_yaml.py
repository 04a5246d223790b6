"""Settings of plain names and words are read without PyYAML, to the same value."""

import subprocess
import sys

import yaml
from hypothesis import given
from hypothesis import strategies as st

from kept.base.safe_yaml import YamlRefused, load_yaml

WORDS = st.sampled_from(
    ["main", "~/notes", "/srv/my-notes", "0", "12", "on", "No", "null", "a.b", "", "x y", "0x1", "~"]
)
LINES = st.builds(
    "{}{}{}:{}{}".format,
    st.sampled_from(["", "  ", "    ", "      "]),
    st.sampled_from(["", "", "- "]),
    st.sampled_from(["id", "agents", "list", "yes", "max_results"]),
    st.sampled_from([" ", " ", ""]),
    WORDS,
)


@given(st.lists(st.one_of(LINES, st.sampled_from(["", "# a comment", "- x", "---"])), max_size=7))
def test_a_text_means_what_it_means_to_pyyaml(lines):
    text = "\n".join(line.rstrip() for line in lines)
    try:
        expected = yaml.safe_load(text)
    except yaml.YAMLError:
        expected = YamlRefused
    try:
        found = load_yaml(text)
    except YamlRefused:
        found = YamlRefused
    assert found == expected


def test_what_kept_init_writes_is_read_without_pyyaml():
    text = "# Settings of Kept.\nagents:\n  list:\n    - id: main\n      workspace: /srv/notes\n"
    show = "print(load_yaml(sys.argv[1]), 'yaml' in sys.modules)"
    program = f"import sys; from kept.base.safe_yaml import load_yaml; {show}"
    done = subprocess.run([sys.executable, "-c", program, text], capture_output=True, text=True, check=True)
    assert done.stdout == "{'agents': {'list': [{'id': 'main', 'workspace': '/srv/notes'}]}} False\n"
