"""Quotations of erased records in texts of any form."""

import json

import pytest

from outrider.dataops.erasure.texts import Quotations


@pytest.mark.parametrize("levels", [3000, 600])
def test_a_text_that_is_nested_too_deeply_to_be_read_loses_its_quotations(levels: int) -> None:
    deep = "[" * levels + json.dumps("Zoë Müller called") + "]" * levels
    quoted = Quotations({"person-zq7"}, {"Zoë Müller"})
    clean = quoted.cleaned(deep)
    assert clean is not None
    assert "ller" not in clean
    assert "called" in clean
    assert quoted.cleaned_value({"said": "[" * levels, "id": "person-zq7"})["said"] == "[" * levels
    assert quoted.cleaned("[" * levels) is None
