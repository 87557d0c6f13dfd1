"""Merge of modules into one graph: hash-consing over traced operations.

Two operations are one where they apply the same function, or a shared part (`sharing`), to the same operands.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

from outrider.dataops.model_kinds.runner import Runner, Tensors

from .fingerprint import fingerprint
from .sharing import Sharing
from .writes import Kept, WriteGuard


class NotTraceable(Exception):  # noqa: N818 - reads as the thing it is
    """Module whose Python code cannot be traced."""


class MergedGraph:
    """Merged graphs of runners, with forward passes generated for any selection.

    NotTraceable where code branches on values.
    """

    def __init__(self, runners: Sequence[Runner], sharing: Sharing, names: Sequence[str]) -> None:
        self._graph = fx.Graph()
        self._root = nn.Module()
        self._nodes: dict[Hashable, fx.Node] = {}
        self._operands: dict[int, str] = {}
        self._input = self._graph.placeholder("tensors")
        self._answers = [self._add(runner, sharing, names) for runner in runners]
        self._passes: dict[tuple[int, ...], fx.GraphModule] = {}

    def run(self, tensors: Tensors, numbers: Sequence[int]) -> list[Tensors]:
        wanted = tuple(numbers)
        if wanted not in self._passes:
            self._passes[wanted] = self._pass_of(wanted)
        answers: list[Tensors] = self._passes[wanted](tensors)
        return answers

    def run_checked(self, tensors: Tensors, numbers: Sequence[int]) -> list[Tensors]:
        """Run with a check that operations write into their own results only; raises WritesIntoShared."""
        self.run(tensors, numbers)
        return _Checked(self._passes[tuple(numbers)]).run(tensors)  # type: ignore[no-any-return]  # of torch

    def operations(self, numbers: Sequence[int]) -> int:
        return len(_needed([self._answers[number] for number in numbers]))

    def _pass_of(self, numbers: tuple[int, ...]) -> fx.GraphModule:
        answers = [self._answers[number] for number in numbers]
        needed = _needed(answers)
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in self._graph.nodes:  # in the order of their making: operands first
            if node in needed:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(fx.map_arg(answers, copies.__getitem__))
        return fx.GraphModule(self._root, graph)

    def _add(self, runner: Runner, sharing: Sharing, names: Sequence[str]) -> Any:
        whole = _Whole(runner, names)
        traced = _trace(whole, sharing)
        mine: dict[fx.Node, fx.Node] = {}
        for node in traced.nodes:
            if node.op == "output":
                return fx.map_arg(node.args[0], mine.__getitem__)
            mine[node] = self._take(node, mine, whole)
        raise NotTraceable("the traced graph has no output")

    def _take(self, node: fx.Node, mine: Mapping[fx.Node, fx.Node], whole: nn.Module) -> fx.Node:
        if node.op == "placeholder":
            return self._input
        target: Any = node.target
        if node.op in ("call_module", "get_attr"):
            target = self._operand(_at(whole, str(target)))
        args: Any = fx.map_arg(node.args, mine.__getitem__)
        kwargs: Any = fx.map_arg(node.kwargs, mine.__getitem__)
        key = (node.op, fingerprint(target), _key(args), _key(kwargs))
        if key not in self._nodes:
            self._nodes[key] = self._graph.create_node(node.op, target, args, kwargs)
        return self._nodes[key]

    def _operand(self, found: nn.Module | torch.Tensor) -> str:
        if id(found) not in self._operands:
            name = f"operand_{len(self._operands)}"
            self._operands[id(found)] = name
            if isinstance(found, nn.Module):
                self._root.add_module(name, found)
            elif isinstance(found, nn.Parameter):
                self._root.register_parameter(name, found)
            else:
                self._root.register_buffer(name, found)
        return self._operands[id(found)]


class _Checked(fx.Interpreter):
    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph, garbage_collect_values=False)  # a place in memory stands for one tensor
        self._kept = Kept([*graph.parameters(), *graph.buffers()])

    def run_node(self, n: fx.Node) -> Any:
        with WriteGuard(self._kept):
            answer = super().run_node(n)
        self._kept.add(answer)
        return answer


class _Whole(nn.Module):
    def __init__(self, runner: Runner, names: Sequence[str]) -> None:
        super().__init__()
        self.module = runner.module
        self._run = runner.run
        self._names = tuple(names)

    def forward(self, tensors: Any) -> Any:
        return self._run({name: tensors[name] for name in self._names})


class _Tracer(fx.Tracer):
    def __init__(self, sharing: Sharing) -> None:
        super().__init__()
        self._sharing = sharing

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002 - of torch
        return not self._sharing.is_split(m)


def _trace(whole: nn.Module, sharing: Sharing) -> fx.Graph:
    try:
        return _Tracer(sharing).trace(whole)
    except Exception as error:
        raise NotTraceable(f"{type(error).__name__}: {error}") from error


def _needed(answers: Any) -> set[fx.Node]:
    pending: list[fx.Node] = []
    fx.map_arg(answers, pending.append)
    needed: set[fx.Node] = set()
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending += node.all_input_nodes
    return needed


def _key(value: Any) -> Hashable:
    if isinstance(value, fx.Node):
        return value
    if isinstance(value, tuple | list):
        return type(value).__name__, tuple(map(_key, value))
    if isinstance(value, Mapping):
        return "dict", tuple((name, _key(item)) for name, item in value.items())
    if isinstance(value, slice):
        return "slice", _key(value.start), _key(value.stop), _key(value.step)
    return fingerprint(value)


def _at(whole: nn.Module, path: str) -> nn.Module | torch.Tensor:
    found: Any = whole
    for name in path.split("."):
        found = getattr(found, name)
    if not isinstance(found, nn.Module | torch.Tensor):
        raise NotTraceable(f"{path} is {type(found).__name__}, a tensor or a module expected")
    return found
