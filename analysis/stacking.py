"""Stack the tables of many runs into the columns of one frame, with little more memory than the frame itself.

Ten million link samples are a gigabyte, so pieces are not gathered and then joined: room for all rows is set aside (which costs
nothing until it is written) and each run's rows are written into it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from analysis import frames


def stack(tables: Iterable[pa.Table], most_rows: int) -> tuple[dict[str, Any], list[int]]:
    """Return the columns of tables stacked, and the number of rows of each table."""
    columns: dict[str, _Numbers | _Names | _Others] = {}
    lengths: list[int] = []
    for table in tables:
        for name in table.column_names:
            values = frames.values_of(table[name], name)
            if name not in columns:
                kind = _Numbers if isinstance(values, np.ndarray) else _Names if isinstance(values, pd.Categorical) else _Others
                columns[name] = kind(most_rows)
            columns[name].append(values)
        lengths.append(len(table))
    return {name: columns.pop(name).whole() for name in list(columns)}, lengths


class _Numbers:
    """A column of plain numbers or truths."""

    def __init__(self, most_rows: int) -> None:
        self._most_rows, self._rows = most_rows, 0
        self._array: np.ndarray | None = None

    def append(self, values: np.ndarray) -> None:
        if self._array is None:
            self._array = np.empty(self._most_rows, values.dtype)
        if (missing := self._rows + len(values) - len(self._array)) > 0:  # a run that still goes on has grown since it was counted
            self._array = np.concatenate([self._array, np.empty(missing, self._array.dtype)])
        self._array[self._rows : self._rows + len(values)] = values
        self._rows += len(values)

    def whole(self) -> np.ndarray:
        return np.empty(0) if self._array is None else self._array[: self._rows]


class _Names:
    """A column of names, whose categories grow as tables bring new ones."""

    def __init__(self, most_rows: int) -> None:
        self._codes = _Numbers(most_rows)
        self._places: dict[str, int] = {}

    def append(self, values: pd.Categorical) -> None:
        places = [self._places.setdefault(name, len(self._places)) for name in values.categories]
        self._codes.append(np.array([*places, -1], dtype=np.int16)[values.codes])  # the last one for null, whose code is -1

    def whole(self) -> Any:
        return pd.Categorical.from_codes(self._codes.whole().astype(np.int16, copy=False), categories=pd.Index(list(self._places)))


class _Others:
    """A column of words or of truths with gaps, of which there are never many."""

    def __init__(self, most_rows: int) -> None:
        self._pieces: list[Any] = []

    def append(self, values: Any) -> None:
        self._pieces.append(pd.Series(values))

    def whole(self) -> Any:
        return pd.concat(self._pieces, ignore_index=True).array
