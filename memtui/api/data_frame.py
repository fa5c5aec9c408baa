"""Data frames of pandas: the only module that imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memtui.core.errors import UserError

if TYPE_CHECKING:
    import pandas
    import pyarrow


def data_frame(table: pyarrow.Table) -> pandas.DataFrame:
    """Return a table as a data frame, in which whole numbers, real ones and text may be ``NA``.

    Raises UserError where pandas is not installed.
    """
    try:
        import pandas
        import pyarrow
    except ImportError:
        raise UserError("pandas is not installed: pip install 'memtui[notebook]'") from None
    types = {
        pyarrow.int64(): pandas.Int64Dtype(),
        pyarrow.float64(): pandas.Float64Dtype(),
        pyarrow.string(): pandas.StringDtype(),
    }
    return table.to_pandas(types_mapper=types.get)
