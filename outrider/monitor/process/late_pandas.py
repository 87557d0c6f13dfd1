"""Import of pandas at its first use, not by pyarrow, which would cost each process 31 MB.

pyarrow looks again once somebody imports pandas; until then only ``pd.NA`` between Python objects is unknown
to it.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


def keep_pandas_out() -> None:
    if "pandas" not in sys.modules:
        finder = _PandasFinder()
        sys.meta_path.insert(0, finder)
        pa.array([])
        finder.is_hiding = False


class _PandasFinder:
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
