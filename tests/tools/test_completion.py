"""Shell completion through the script that `ottla completion` prints: commands, subcommands, flags, values."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.tools.main import COMPLETING, main
from ottla_testing.patience import PATIENCE_S

FOLDER = Path(sys.executable).parent
LINES = {
    "ottla to": {"top", "topics"},
    "ottla topics --cr": {"--create"},
    "ottla ctl faults ": {"list", "add", "show", "remove", "clear"},
    "ottla pipeline audit --no-r": {"--no-records"},
    "ottla serve --log-format ": {"console", "json"},
    "ottla nothing --": set(),
}


@pytest.mark.process
@pytest.mark.parametrize("line", LINES)
def test_bash_completes_a_line(line: str) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = (
        'eval "$(ottla completion bash)"; COMP_LINE=$0; COMP_POINT=${#0}; COMP_TYPE=9; '
        '_python_argcomplete ottla; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{FOLDER}:{os.environ['PATH']}"}
    done = subprocess.run(
        [bash, "--norc", "-c", script, line], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0 and not done.stderr
    assert LINES[line] <= set(done.stdout.split())
    assert not [found for found in done.stdout.split() if not found.startswith(line.split(" ")[-1])]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_of_each_shell_sets_the_variable_of_a_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert COMPLETING in capsys.readouterr().out


def test_unknown_shell_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["completion", "tcsh"])
    assert refused.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'tcsh' is none of bash, zsh, fish" in line
