"""What tests of experiment files share."""

from pathlib import Path

import pytest

from testbed.spec import SpecError, load


@pytest.fixture
def write(tmp_path):
    """Write an experiment file."""

    def write(text: str) -> Path:
        path = tmp_path / "e.yaml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def problems(write):
    """Return the lines of the error that an experiment file makes, less the folder."""

    def problems(text: str) -> list[str]:
        path = write(text)
        with pytest.raises(SpecError) as caught:
            load(path)
        return str(caught.value).replace(str(path), "e.yaml").splitlines()

    return problems
