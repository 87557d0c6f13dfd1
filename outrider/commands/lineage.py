"""``outrider lineage``: ancestors of a model version."""

from typing import Annotated, Any

import typer

from .api import connect
from .output import Config, Json, as_json


def lineage(
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    version: Annotated[str | None, typer.Option(help="The champion by default.")] = None,
    start: Annotated[
        str | None, typer.Option(help="Another node to begin at, such as dataset:digits-flagged@7.")
    ] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show a model version's nearest ancestors: datasets, replay, parent, job."""
    tree = connect(config).get(f"/v1/lineage/{model}", version=version, start=start)
    if json:
        as_json(tree)
        return
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    def grown(node: dict[str, Any], branch: Tree) -> None:
        for parent in node["parents"]:
            grown(parent, branch.add(Text(line(parent))))

    root = Tree(Text(line(tree)))
    grown(tree, root)
    Console().print(root)
    if tree.get("more"):
        typer.echo(f"{tree['more']} more ancestors: go on with --start, from a node that says so")


def line(node: dict[str, Any]) -> str:
    """Text of a node: role, name and figures."""
    facts = [str(node[key]) for key in ("status", "note") if node.get(key)]
    if "rows" in node:
        facts.append(f"{node['rows']} rows")
    facts += [f"{name} {count}" for name, count in node.get("assertions", {}).items()]
    facts += [f"labels of {name} {count}" for name, count in node.get("label_sources", {}).items() if name]
    if "erased" in node:
        facts.append(f"{node['erased']['rows']} rows erased")
    if "gate" in node:
        facts.append(f"gate: {node['gate']['outcome']}")
    if node.get("seen"):
        facts.append("shown elsewhere")
    if node.get("cut"):
        facts.append(f"more: --start {node['kind']}:{node['id']}")
    role = f"{node['role']}: " if node["role"] else ""
    return f"{role}{node['kind']} {node['id']}" + (f" ({', '.join(facts)})" if facts else "")
