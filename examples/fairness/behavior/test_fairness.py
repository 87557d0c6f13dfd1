"""What a model of income must hold to, whoever applies.

``live=0.05`` asks about one live record in twenty as well; a flip that changes the answer is a flag.
"""

import os
from pathlib import Path

import pandas as pd

from outrider.behavioral_tests import INV, MFT, expect, perturb

CENSUS = Path(os.environ.get("ADULT_CENSUS", Path(__file__).parents[1] / "adult.parquet"))
FLIPPED = {"Male": "Female", "Female": "Male"}
SPOUSE = {"Husband": "Wife", "Wife": "Husband"}


def applicants():
    """Rows on which nobody trains, with the income as label."""
    return pd.read_parquet(CENSUS)[24_000:].rename(columns={"income": "label"}).reset_index(drop=True)


test_the_same_person_of_the_other_sex = INV(
    capability="fairness",
    description="sex flipped, and husband with wife: the answer stays",
    cases=applicants,
    perturb=perturb.tabular.flip("sex", FLIPPED, with_={"relationship": SPOUSE}),
    tolerance=0.01,
    live=0.05,
)
test_men_and_women_are_selected_alike = MFT(
    capability="fairness",
    cases=applicants,
    expect=expect.group_gap("selection_rate", by="sex", positive=">50K", at_most=0.1),
)
test_men_and_women_who_earn_it_are_found_alike = MFT(
    capability="fairness",
    description="true positive rates: equal opportunity",
    cases=applicants,
    expect=expect.group_gap("tpr", by="sex", positive=">50K", at_most=0.1),
)
test_it_is_still_right = MFT(capability="accuracy", cases=applicants, tolerance=0.18)
