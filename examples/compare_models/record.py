"""Write traffic.parquet: 20,000 requests as production may have got them, from two clinics."""

import numpy as np
import pandas as pd
from models import INPUTS, measurements

rows, random = 20_000, np.random.default_rng(0)
values, _ = measurements()
drawn = values[random.integers(len(values), size=rows)] * random.normal(1.0, 0.05, size=(rows, len(INPUTS)))
frame = pd.DataFrame(drawn, columns=[f"inputs.{name}" for name in INPUTS])
frame["attrs.clinic"] = random.choice(["north", "south"], size=rows, p=[0.9, 0.1])
frame.to_parquet("traffic.parquet")
