"""Judged on every live record: are men and women selected alike? No label is needed."""

from outrider.assertions.library import selection_gap

unequal_selection = selection_gap("inputs.sex", ["Female", "Male"], positive=">50K", at_most=0.1)
