"""Pickled CheckList suite to JSON lines for ``outrider test import``.

It runs in CheckList's environment (Python 3.6 or newer, CheckList 0.0.11) and needs nothing of Outrider: copy
this file there and call ``python checklist_converter.py suite.pkl suite.jsonl``. Opening a pickle runs code
from it, so convert only suites that you trust.

Expectations are recognised by comparing their code with that of the installed CheckList. Tests that cannot be
converted are written with the reason, printed, and listed by the import: custom functions other than a
comparison of the prediction with a constant or the label, and combinations, aggregations and slices by such
functions. ``--rules rules.json`` assigns an Outrider rule to such tests: ``{"name of test": {"scope":
"testcase", "rule": {"expect": "agree"}}}``. ``meta`` is not converted; no converted expectation uses it.
"""
# The Python of CheckList may be an old one: its rules are in pyproject.toml.

import argparse
import dis
import importlib
import json
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple  # noqa: F401

Spec = Dict[str, Any]
_COMPARED = {"==": "eq", "!=": "not_equal"}
_IGNORED = ("RESUME", "CACHE", "PRECALL", "NOP", "COPY_FREE_VARS", "MAKE_CELL", "EXTENDED_ARG")


class NotCarried(Exception):  # noqa: N818 - no error: the test is listed
    """Raised with the reason why a test cannot be converted."""


def lines_of(suite: Any, name: str, fields: List[str], rules: Spec) -> Iterator[Spec]:
    """One JSON object per test of a ``TestSuite``, in its order."""
    for called, test in suite.tests.items():
        line = {"suite": name, "name": called, "type": type(test).__name__}  # type: Spec
        info = suite.info.get(called, {})
        line["capability"] = info.get("capability") or test.capability or "general"
        line["description"] = info.get("description") or test.description or ""
        try:
            line.update(_written(test, fields, rules.get(called)))
            json.dumps(line, allow_nan=False)
        except NotCarried as reason:
            line["not_carried"] = str(reason)
        except (TypeError, ValueError) as error:
            line = {key: line[key] for key in ("suite", "name", "type", "capability", "description")}
            line["not_carried"] = "a value of it does not fit into JSON: %s" % error
        yield line


def _written(test: Any, fields: List[str], rule: Optional[Spec]) -> Spec:
    if type(test).__name__ not in ("MFT", "INV", "DIR"):
        raise NotCarried("MFT, INV or DIR expected, got %s" % type(test).__name__)
    line = {"aggregate": _aggregate(test.agg_fn)}  # type: Spec
    if rule is None:
        line["expectation"] = _expectation(test.expect)
    else:
        line["expectation"] = {"kind": "rule", "scope": rule["scope"], "params": rule["rule"]}
    if fields:
        line["fields"] = fields
    labels = test.labels
    if _is_group(labels) and len(labels) != len(test.data):
        raise NotCarried("%d labels for %d cases" % (len(labels), len(test.data)))
    line["cases"] = []
    for number, data in enumerate(test.data):
        grouped = _is_group(data)
        case = {"inputs": [_example(each) for each in data] if grouped else [_example(data)]}  # type: Spec
        label = labels[number] if _is_group(labels) else labels
        if _is_group(label) and grouped:
            case["labels"] = [_scalar(each, "a label") for each in label]
        elif label is not None:
            case["label"] = _scalar(label, "a label")
        line["cases"].append(case)
    if test.run_idxs is not None:
        line["release_sample"] = [int(number) for number in test.run_idxs]
    return line


def _is_group(data: Any) -> bool:
    """True for a group of values in CheckList: a list or an array, but not a tuple."""
    return type(data) is list or type(data).__name__ == "ndarray"


def _scalar(value: Any, what: str) -> Any:
    found = _plain(value)
    if found is not None and not isinstance(found, (str, bool, int, float)):
        raise NotCarried("%s that is a %s" % (what, type(value).__name__))
    return found


def _example(data: Any) -> Any:
    if isinstance(data, str):
        return str(data)
    found = _plain(data)
    if not isinstance(found, (list, dict)):
        raise NotCarried(
            "an example that is a %s; texts, tuples and dictionaries are carried" % type(data).__name__
        )
    return found


def _plain(value: Any) -> Any:
    """Tuples, arrays and numpy numbers as JSON-compatible values."""
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value


def _expectation(fn: Any) -> Spec:
    """Expectation of CheckList as data, recognised by its inner functions."""
    expect = importlib.import_module("checklist.expect").Expect  # type: Any

    def nothing(*_: Any) -> None:
        return None

    if _same(fn, expect.wrap_slice(nothing, nothing)):
        return _sliced(expect, fn, nothing)
    if _same(fn, expect.combine(nothing, nothing, nothing)):
        return _combined(expect, fn, nothing)
    if _same(fn, expect.test(nothing)):
        raise NotCarried("Expect.test of %s: a function over the whole test" % _name(_cell(fn, "fn")))
    if not _same(fn, expect.testcase(nothing)):
        raise NotCarried("%s is no expectation of the CheckList that is installed here" % _name(fn))
    of_case = _cell(fn, "fn")
    if _same(of_case, _cell(expect.single(nothing), "fn")):
        return _single(expect, _cell(of_case, "fn"))
    if _same(of_case, _cell(expect.pairwise(nothing), "fn")):
        return _pairwise(expect, _cell(of_case, "fn"))
    raise NotCarried("Expect.testcase of %s: a function over whole cases" % _name(of_case))


def _single(expect: Any, fn: Any) -> Spec:
    if _same(fn, _innermost(expect.eq(0))):
        value = _scalar(_cell(fn, "val"), "Expect.eq of a value")
        if isinstance(value, str) and value == "label":
            raise NotCarried("Expect.eq of a class that is called label")
        return {"kind": "eq", "scope": "single", "params": {"value": "label" if value is None else value}}
    compared = _comparison(fn, 1)
    if compared is None or compared[0] not in _COMPARED:
        raise NotCarried("Expect.single of %s: code of one's own" % _name(fn))
    op, value = compared
    if value == "label" and isinstance(value, str):
        raise NotCarried("Expect.single of %s: a class that is called label" % _name(fn))
    value = "label" if isinstance(value, _Argument) else value
    return {"kind": _COMPARED[op], "scope": "single", "params": {"value": value}}


def _pairwise(expect: Any, fn: Any) -> Spec:
    if _same(fn, _innermost(expect.inv())):
        return {"kind": "inv", "scope": "pairwise", "params": {"tolerance": float(_cell(fn, "tolerance"))}}
    if _same(fn, _innermost(expect.monotonic())):
        label = _plain(_cell(fn, "keep_label"))
        params = {
            "label": "orig_pred" if label is None else label,
            "increasing": bool(_cell(fn, "increasing")),
            "tolerance": float(_cell(fn, "tolerance")),
        }
        return {"kind": "monotonic", "scope": "pairwise", "params": params}
    raise NotCarried("Expect.pairwise of %s: code of one's own" % _name(fn))


def _sliced(expect: Any, fn: Any, nothing: Any) -> Spec:
    """Expectation of ``slice_orig`` or, for single examples, ``slice_single``."""
    inner = _expectation(_cell(fn, "expect_fn"))
    if "slice" in inner:
        raise NotCarried("a slice of a slice")
    condition, aggregate = _cell(fn, "slice_fn"), _aggregate(_cell(fn, "agg_fn"))
    if not _same(condition, expect.testcase(nothing)):
        raise NotCarried("a slice by %s: code of one's own" % _name(condition))
    of_case = _cell(condition, "fn")
    if _same(of_case, _cell(expect.pairwise(nothing), "fn")):
        by, field = _cell(of_case, "fn"), "orig_pred"
        of_original = _cell(_cell(_cell(expect.slice_orig(nothing, nothing), "slice_fn"), "fn"), "fn")
        by = _cell(by, "slice_fn") if _same(by, of_original) else by
        what, at = "slice_orig" if by is not _cell(of_case, "fn") else "slice_pairwise", 0
    elif _same(of_case, _cell(expect.single(nothing), "fn")):
        by, field, what, at = _cell(of_case, "fn"), "pred", "slice_single", 1
    else:
        raise NotCarried("Expect.slice_testcase by %s: a function over whole cases" % _name(of_case))
    compared = _comparison(by, at)
    if compared is None or isinstance(compared[1], _Argument):
        raise NotCarried("Expect.%s by %s: code of one's own" % (what, _name(by)))
    if aggregate != "all":
        raise NotCarried("Expect.%s with aggregation %s" % (what, aggregate))
    inner["slice"] = {"field": field, "op": compared[0], "value": compared[1]}
    return inner


def _combined(expect: Any, fn: Any, nothing: Any) -> Spec:
    combine = _cell(fn, "combine_fn")
    for kind in ("combine_and", "combine_or"):
        if _same(combine, _cell(getattr(expect, kind)(nothing, nothing), "combine_fn")) and _cell(
            fn, "ignore_none"
        ):
            return {
                "kind": kind,
                "of": [_expectation(_cell(fn, name)) for name in ("expect_fn1", "expect_fn2")],
            }
    raise NotCarried("Expect.combine by %s: code of one's own" % _name(combine))


def _aggregate(fn: Any) -> str:
    if fn in ("all", "all_except_first"):
        return str(fn)
    expect = importlib.import_module("checklist.expect").Expect  # type: Any
    if _same(fn, expect.all()):
        return "all_except_first" if _cell(fn, "ignore_first") else "all"
    raise NotCarried("aggregation by %s: code of one's own" % _name(fn))


class _Argument(object):
    """Marks the label argument in a comparison, as opposed to a constant."""


def _comparison(fn: Any, at: int) -> Optional[Tuple[str, Any]]:
    """Operator and value of a function that only compares argument ``at`` with a constant or its label."""
    code = getattr(fn, "__code__", None)
    if code is None or code.co_argcount <= at:
        return None
    names = code.co_varnames[: code.co_argcount]
    steps = [each for each in dis.get_instructions(code) if each.opname not in _IGNORED]
    loaded = []  # type: List[Any]
    for each in steps[:-2]:
        loaded += _loaded(fn, each)
    if len(loaded) != 2 or loaded[0] != ("argument", names[at]) or steps[-1].opname != "RETURN_VALUE":
        return None
    op, (kind, value) = _operator(steps[-2]), loaded[1]
    if kind == "argument":
        is_label = at == 1 and len(names) > 3 and value == names[3] and op in _COMPARED
        return (op, _Argument()) if is_label else None
    return _constant_comparison(op, value) if kind == "constant" else None


def _constant_comparison(op: str, value: Any) -> Optional[Tuple[str, Any]]:
    value = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else _plain(value)
    plain = value if op in ("in", "not in") else [value]
    is_plain = isinstance(plain, list) and all(isinstance(each, (str, bool, int, float)) for each in plain)
    return (op, value) if op and is_plain else None


def _loaded(fn: Any, step: Any) -> List[Tuple[str, Any]]:
    """Constants and arguments that one bytecode instruction pushes on the stack."""
    if step.opname in ("LOAD_CONST", "LOAD_SMALL_INT"):
        return [("constant", step.argval)]
    if step.opname == "LOAD_DEREF" and step.argval in fn.__code__.co_freevars:
        return [("constant", _cell(fn, step.argval))]
    if step.opname == "LOAD_GLOBAL" and step.argval in fn.__globals__:
        return [("constant", fn.__globals__[step.argval])]
    if step.opname.startswith("LOAD_FAST"):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        return [("argument", name) for name in names]
    return [("other", step.opname)]


def _operator(step: Any) -> str:
    """Comparison operator of one bytecode instruction; empty for others."""
    if step.opname == "CONTAINS_OP":
        return "not in" if step.arg else "in"
    known = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")
    return str(step.argval) if step.opname == "COMPARE_OP" and step.argval in known else ""


def _same(fn: Any, reference: Any) -> bool:
    """True for functions with equal code, whatever their closures."""
    one, other = (getattr(each, "__code__", None) for each in (fn, reference))
    return one is not None and other is not None and _shape(one) == _shape(other)


def _shape(code: Any) -> Tuple[Any, ...]:
    constants = tuple(_shape(each) if hasattr(each, "co_code") else repr(each) for each in code.co_consts)
    return (code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)


def _cell(fn: Any, name: str) -> Any:
    """Value of a closure variable of a function."""
    return fn.__closure__[fn.__code__.co_freevars.index(name)].cell_contents


def _innermost(expectation: Any) -> Any:
    return _cell(_cell(expectation, "fn"), "fn")


def _name(fn: Any) -> str:
    return "%s()" % getattr(fn, "__name__", type(fn).__name__)


def main(arguments: Optional[List[str]] = None) -> int:
    """Convert a file. Returns 0 if all tests were converted, else 1."""
    parser = argparse.ArgumentParser(description="A pickled suite of CheckList as JSON lines.")
    parser.add_argument("suite", help="pickle that TestSuite.save wrote")
    parser.add_argument("output", help="file to write: .jsonl")
    parser.add_argument("--name", default="", help="name of the suite; the file's by default")
    parser.add_argument("--fields", default="", help="names of the texts of a tuple: question1,question2")
    parser.add_argument("--rules", default="", help="JSON file with rules for tests that cannot be carried")
    given = parser.parse_args(arguments)
    suite = importlib.import_module("checklist.test_suite").TestSuite.from_file(given.suite)  # type: Any
    name = given.name or given.suite.replace("\\", "/").split("/")[-1].split(".")[0] or "checklist"
    rules = {}  # type: Spec
    if given.rules:
        with open(given.rules, encoding="utf-8") as file:
            rules = json.load(file)
    unknown = sorted(set(rules) - set(suite.tests))
    if unknown:
        parser.error("%s has a rule for %r, which is no test of the suite" % (given.rules, unknown[0]))
    fields = [each.strip() for each in given.fields.split(",") if each.strip()]
    lines = list(lines_of(suite, name, fields, rules))
    with open(given.output, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    left_out = [line for line in lines if "not_carried" in line]
    print("%s: %d tests, %d of them not carried" % (given.output, len(lines), len(left_out)))
    for line in left_out:
        print("  %s: %s" % (line["name"], line["not_carried"]))
    return 1 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
