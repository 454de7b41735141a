"""What tests of jobs share."""

from __future__ import annotations

from typing import Any

import pytest

from assay.cli import main


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Any:
    """Calls a command; gives its exit code and what it printed on stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        printed = capfd.readouterr()
        return int(stopped.value.code or 0), printed.out, printed.err

    return run
