"""Import of pandas at its first use, not by pyarrow.

pyarrow imports pandas with the first array that it makes, to tell frames from lists: 31 MB of memory in each
process that never sees a frame. Here it looks once while pandas cannot be found, and again as soon as
somebody imports it; then only ``pd.NA`` between Python objects stays unknown to it.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


def keep_pandas_out() -> None:
    """Leave the import of pandas to its first user."""
    if "pandas" not in sys.modules:
        finder = _PandasFinder()
        sys.meta_path.insert(0, finder)
        pa.array([])
        finder.is_hiding = False


class _PandasFinder:
    """Finds no pandas at first, and later the one that pyarrow hears of."""

    is_hiding = True

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the protocol's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if name != "pandas":
            return None
        if self.is_hiding:
            raise ModuleNotFoundError("pandas is not looked for yet", name=name)
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def tell(module: ModuleType) -> None:
                run(module)
                pa.array([]).to_pandas()

            spec.loader.exec_module = tell  # type: ignore[method-assign]
        return spec
