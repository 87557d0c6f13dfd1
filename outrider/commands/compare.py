"""``outrider compare``: compare candidates with production, without labels."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from outrider.errors import ConfigError, OutriderError

from .api import connect, following_tables
from .durations import seconds
from .kept_project import ComparedSystems, keep_comparison, write_project
from .live_report import LiveReport, live_report
from .mirror_snippets import snippets
from .output import Config, HashOption, Json, write_file

if TYPE_CHECKING:
    import pyarrow as pa

    from outrider.assertions import Batch
    from outrider.monitor.compare.answers import Asker
    from outrider.monitor.compare.drawn_order import DrawnTraffic
    from outrider.monitor.compare.plan import Until
    from outrider.monitor.compare.report import CompareReport
    from outrider.monitor.compare.run import ComparisonRun, Ending
    from outrider.monitor.compare.traffic import Traffic

_INTERRUPTED = 130
_POLL_S = 0.5


def compare(
    candidate: Annotated[
        list[str],
        typer.Option(
            help="What may replace production: an OpenAI or V2 address, a folder, an ONNX file, "
            "file.py:callable, or prompt.md for production's model with that system prompt (may be repeated)."
        ),
    ],
    traffic: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", help="Recorded requests: JSON lines, Parquet, captures, OTLP (may be repeated)."
        ),
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="Port, or HOST:PORT, where a gateway sends copies of requests to.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model of the running service whose records are asked about.")
    ] = None,
    production: Annotated[
        str | None,
        typer.Option(
            help="Address or model that answers now; without it, its recorded answers are compared."
        ),
    ] = None,
    until: Annotated[
        str, typer.Option(help="decided (at most 10,000 records), a number of records, or a time: 30m.")
    ] = "decided",
    margin: Annotated[
        float, typer.Option(min=0.0001, max=0.5, help="Share of answers that may differ beyond noise.")
    ] = 0.02,
    slice_by: Annotated[
        list[str] | None,
        typer.Option(
            "--slice", help="Column whose values are judged apart: attrs.country (may be repeated)."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Output that is the answer; default: found in them.")
    ] = None,
    agree: Annotated[
        list[str] | None,
        typer.Option(
            help="What of texts must agree: words, facts, a path of JSON ($.decision), "
            "classes=approved,rejected or, with --embed, embedding; default: whole texts (may be repeated)."
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Scores differ beyond this share of the spread of production's (5 to 95 %).",
        ),
    ] = 0.01,
    twice: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Share of questions asked twice, for the noise; default a quarter, all once there is some.",
        ),
    ] = None,
    deterministic: Annotated[
        bool, typer.Option(help="Production always answers a question alike: it has no noise to measure.")
    ] = False,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, help="Maximum questions per second to production, and to each candidate."),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(help="Price of a million tokens in and out: production=0.5/1.5 (may be repeated)."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="Column that is neither sent nor kept (may be repeated).")
    ] = None,
    hash_: HashOption = None,
    safe_to_ask: Annotated[
        list[str] | None,
        typer.Option(help="Further kind of request that does nothing when asked (may be repeated)."),
    ] = None,
    embed: Annotated[
        str | None,
        typer.Option(
            help="Folder or file.py:callable of an embedding model, by which texts are compared as a whole, "
            "and examples ordered; --agree embedding lets it say same."
        ),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            help="Address of a language model that says which of two answers is better; it decides "
            "only where labels correct it."
        ),
    ] = None,
    judge_model: Annotated[str | None, typer.Option(help="Name to call the judge's model by.")] = None,
    judge_budget: Annotated[int, typer.Option(min=1, help="Maximum number of pairs to judge.")] = 400,
    judge_key_env: Annotated[
        str, typer.Option(help="Environment variable with the judge's key.")
    ] = "OUTRIDER_JUDGE_KEY",
    production_key_env: Annotated[
        str, typer.Option(help="Environment variable with production's key.")
    ] = "OUTRIDER_MODEL_KEY",
    candidate_key_env: Annotated[
        str, typer.Option(help="Environment variable with the candidates' key.")
    ] = "OUTRIDER_CANDIDATE_KEY",
    candidate_model: Annotated[
        str | None, typer.Option(help="Name to call the candidates' model by; default as in the request.")
    ] = None,
    deadline: Annotated[float, typer.Option(min=0.01, help="Seconds for one answer.")] = 30.0,
    parallel: Annotated[int, typer.Option(min=1, max=256, help="Questions under way at each address.")] = 4,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the order of a file's records, and of all other draws.")
    ] = 0,
    allow_different: Annotated[bool, typer.Option(help="Exit with 1 for worse only.")] = False,
    keep: Annotated[
        Path | None,
        typer.Option(help="Folder for the report, the pairs to label and a project that serve runs."),
    ] = None,
    md: Annotated[Path | None, typer.Option(help="Write the report as Markdown.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as one HTML file.")] = None,
    examples: Annotated[bool, typer.Option(help="Put records into the Markdown.")] = False,
    page: Annotated[
        bool, typer.Option(help="Show a live page on this machine; label pairs there until Ctrl-C.")
    ] = False,
    config: Config = None,
    yes: Annotated[bool, typer.Option(help="Send traffic to public addresses without asking.")] = False,
    json: Json = False,
) -> None:
    """Compare candidates with production on recorded traffic, without labels.

    Exit code 0 for same, close or better, 1 for different or worse, 6 for undecided.
    """
    from outrider.assertions.comparison.items import checked_agree
    from outrider.monitor.compare.askers import AskOptions, asker_of, local_asker, public_hosts
    from outrider.monitor.compare.chat_asker import ChatAsker
    from outrider.monitor.compare.embedder import TextEmbedder
    from outrider.monitor.compare.forecast import costs_text, forecast_text
    from outrider.monitor.compare.judge import PairJudge
    from outrider.monitor.compare.plan import ComparePlan
    from outrider.monitor.compare.report import CompareReport, ComparisonOrigin
    from outrider.monitor.compare.run import ComparisonRun, drive

    if sum(each is not None for each in (traffic, listen, model)) != 1:
        raise typer.BadParameter("the traffic: one of --from, --listen and --model expected")
    if listen is not None and production is None:
        raise typer.BadParameter(
            "--listen needs --production: a mirror drops its answers, so it is asked again"
        )
    ends, prices = _until(until), _prices(price or [])
    options = AskOptions(
        deadline_s=deadline, parallel=parallel, rate=rate, production_key_env=production_key_env
    )
    plan = ComparePlan(
        margin,
        twice,
        deterministic,
        target or "",
        tuple(slice_by or ()),
        judge is not None,
        embed is not None,
        seed,
        checked_agree(agree or ()),
        tolerance,
    )
    asked = (
        None
        if production is None
        else asker_of(production, options.but(name="production", key_env=production_key_env))
    )
    _check_candidates(candidate, production if candidate_model is None else None)
    candidates = [
        asker_of(each, options.but(key_env=candidate_key_env, model=candidate_model), production=production)
        for each in candidate
    ]
    _confirm(public_hosts([*candidate, *([judge] if judge else [])], production), yes=yes)
    pair_judge = (
        None
        if judge is None
        else PairJudge(
            asker_of(judge, options.but(name="judge", rate=None, key_env=judge_key_env, model=judge_model)),
            budget=judge_budget,
        )
    )
    _name_apart(candidates)
    prices = _by_name(prices, dict(zip(candidate, (each.name for each in candidates), strict=True)))
    embedder = (
        None if embed is None else TextEmbedder(local_asker(embed, options.but(name="embedding")), seed)
    )
    run = ComparisonRun(asked, candidates, plan, judge=pair_judge, embedder=embedder)
    began, opened = time.monotonic(), time.time_ns() // 1000
    taken = {"drop": drop or (), "hash": hash_ or (), "safe": safe_to_ask or ()}

    def report(ending: "Ending" = "running") -> CompareReport:
        seconds = time.monotonic() - began
        return CompareReport.of(
            run,
            plan,
            ending=ending,
            funnel=questions.funnel(),
            seconds=seconds,
            prices=prices,
            model=model,
            origin=ComparisonOrigin(
                opened,
                dict(zip([each.name for each in candidates], candidate, strict=True))
                | ({} if production is None else {"production": production}),
                {
                    each.name: each.system
                    for each in candidates
                    if isinstance(each, ChatAsker) and each.system
                },
            ),
        )

    with ExitStack() as stack:
        stack.callback(run.close)
        stop, ended = stack.enter_context(_until_stopped())
        questions = stack.enter_context(_traffic(traffic, listen, model, config, taken, seed, stop))
        live = stack.enter_context(live_report(model, config, report))
        if page:
            stack.enter_context(_page_of(lambda: report().data, run.label))
        try:
            with _progress(ends, quiet=json) as tell:
                announced = _announced(questions, lambda names: forecast_text(run.forecast(names), ends))
                priced = _once(lambda: costs_text(report().data["plan"]["cost"]), tell)
                ending = drive(run, announced, ends, stop=stop, tell=priced)
        except KeyboardInterrupt:
            _end(_INTERRUPTED)
        found = report(ending)
        if page:
            typer.echo("\n".join(found.sentences()), err=True)
            typer.echo("Labels are taken on the page until Ctrl-C.", err=True)
            stop.clear()
            while not (
                stop.is_set() or ended.is_set()
            ):  # waiting on it, its handler could find its lock taken
                time.sleep(_POLL_S)
            found = report(ending)
    _write(found, keep=keep, md=md, html=html, has_examples=examples)
    systems = ComparedSystems(
        production,
        candidate,
        run.question,
        margin,
        production_key_env,
        candidate_key_env,
        candidate_model,
        plan.agree,
    )
    _keep(found, keep, systems)
    _send(found, live)
    typer.echo(found.json() if json else found.text())
    code = found.exit_code(allows_different=allow_different)
    if run.is_abandoned:
        _end(code)
    raise typer.Exit(code)


def _keep(found: "CompareReport", folder: Path | None, systems: ComparedSystems) -> None:
    """Write a project that shows the comparison with ``outrider serve``."""
    if folder is None:
        return
    write_project(folder, systems, found.data)
    with _unshown():
        page = keep_comparison(folder, found.json())
        typer.echo(f"`outrider serve` in {folder} shows the comparison at {page}", err=True)


def _send(found: "CompareReport", live: LiveReport | None) -> None:
    """Send the report to the service that the records came from."""
    if live is None:
        return
    with _unshown():
        typer.echo(f"page: {live.send(found)}", err=True)


@contextmanager
def _unshown() -> Iterator[None]:
    """Print an error of the service instead of raising, because the comparison itself succeeded."""
    try:
        yield
    except OutriderError as error:
        typer.echo(f"The service does not show this comparison: {error}", err=True)


def _end(code: int) -> NoReturn:
    """Exit without joining threads that still wait for answers; the kernel ends the models' processes."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextmanager
def _traffic(
    files: Sequence[Path] | None,
    listen: str | None,
    model: str | None,
    config: Path | None,
    taken: Mapping[str, Sequence[str]],
    seed: int,
    stop: threading.Event,
) -> "Iterator[Traffic | DrawnTraffic]":
    """Questions from files, a running service, or mirrored requests, in this order of precedence."""
    from outrider.monitor.compare.drawn_order import DrawnTraffic
    from outrider.monitor.compare.followed import FollowedTraffic, mirrored_line
    from outrider.monitor.compare.traffic import Traffic

    if files is not None:
        yield DrawnTraffic(Traffic(files, **taken), seed, stop=stop)
    elif model is not None:
        yield FollowedTraffic(_paced(following_tables(connect(config), model)), model, **taken)
    else:
        from outrider.monitor.server.local_server import LocalServer
        from outrider.monitor.server.mirror_queue import MirrorQueue

        copies = MirrorQueue()
        lines = ([mirrored_line(*each) for each in some] for some in copies.waiting())
        with LocalServer(copies, *_address(listen or "")) as server:
            typer.echo(
                f"waiting for copies of requests at {server.url}\n\n{snippets(server.url)}\n", err=True
            )
            yield FollowedTraffic(lines, "mirror", **taken)


def _paced(tables: "Iterator[pa.Table | None]") -> "Iterator[pa.Table | None]":
    for table in tables:
        yield table
        if table is None:
            time.sleep(_POLL_S)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise typer.BadParameter(f"--listen: a port, or HOST:PORT, expected, got {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


@contextmanager
def _page_of(report: Callable[[], Mapping[str, Any]], label: Callable[..., bool]) -> Iterator[None]:
    """Serve a live page of the comparison and print its address on stderr."""
    from outrider.monitor.server.local_server import LocalServer
    from outrider.monitor.views.comparisons.page import ComparePage

    shown = ComparePage(report, label)
    with LocalServer(shown) as server:
        typer.echo(f"page: {server.url}{shown.path}", err=True)
        yield


def _until(text: str) -> "Until":
    from outrider.monitor.compare.plan import Until

    if text == "decided":
        return Until()
    if text.isdecimal() and int(text) > 0:
        return Until(is_decided=False, records=int(text))
    try:
        return Until(is_decided=False, records=2**62, seconds=seconds(text))
    except OutriderError:
        raise typer.BadParameter(
            f"--until: decided, a number of records, or a time such as 30m expected, got {text!r}"
        ) from None


def _prices(texts: Sequence[str]) -> dict[str, tuple[float, float]]:
    found = {}
    for text in texts:
        name, _, both = text.rpartition("=")
        try:
            one, two = (float(part) for part in both.split("/"))
        except ValueError:
            one = -1.0
        if not name or one < 0 or two < 0:
            raise typer.BadParameter(f"--price: production=0.5/1.5 (in/out) expected, got {text!r}")
        found[name] = (one, two)
    return found


def _announced(batches: "Iterable[Batch]", sentence: Callable[[Collection[str]], str]) -> "Iterator[Batch]":
    """Pass the batches through, printing ``sentence`` on stderr before the first question."""
    is_announced = False
    for batch in batches:
        if batch.rows and not is_announced:
            is_announced = True
            typer.echo(sentence(batch.names), err=True)
        yield batch


def _once(
    sentence: Callable[[], str], tell: "Callable[[ComparisonRun], None]"
) -> "Callable[[ComparisonRun], None]":
    """Wrap ``tell`` so that ``sentence`` is printed on stderr once, after the first answers."""
    printed: list[str] = []

    def once(run: "ComparisonRun") -> None:
        if run.asked and not printed:
            printed.append(sentence())
            if printed[0]:
                typer.echo(printed[0], err=True)
        tell(run)

    return once


def _plain(text: str) -> str:
    return text.rstrip("/")


def _by_name(
    prices: Mapping[str, tuple[float, float]], names: Mapping[str, str]
) -> dict[str, tuple[float, float]]:
    """Prices by system name in the report, from those by ``--candidate`` text."""
    found = {names.get(name, name): both for name, both in prices.items()}
    if unknown := sorted(found.keys() - {"production", *names.values()}):
        there = ", ".join(["production", *names])
        raise typer.BadParameter(f"--price: one of {there} expected, got {unknown[0]!r}")
    return found


def _check_candidates(texts: Sequence[str], production: str | None) -> None:
    """Refuse a candidate named twice; warn of one that is production itself."""
    if production is not None and _plain(production) in map(_plain, texts):
        typer.echo("A candidate is production itself: what differs is its own noise.", err=True)
    named: set[str] = set()
    for text in texts:
        if _plain(text) in named:
            raise typer.BadParameter(f"--candidate {text} is named twice: name it once")
        named.add(_plain(text))


def _name_apart(candidates: "Sequence[Asker]") -> None:
    """Number systems of the same name, so that names in the report are unique."""
    named = {"production"}
    for each in candidates:
        name, number = each.name, 1
        while each.name in named:
            number += 1
            each.name = f"{name} ({number})"
        named.add(each.name)


def _confirm(hosts: Sequence[str], *, yes: bool) -> None:
    """Ask before traffic is sent to public hosts other than production's."""
    if not hosts or yes:
        return
    typer.confirm(f"Recorded traffic will be sent to {', '.join(hosts)}. Go on?", abort=True, err=True)


@contextmanager
def _until_stopped() -> Iterator[tuple[threading.Event, threading.Event]]:
    """Yield an event set by Ctrl-C or SIGTERM, and one set by SIGTERM alone. A second signal interrupts at
    once."""
    stop, ended = threading.Event(), threading.Event()

    def interrupt(number: int, _: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        if number == signal.SIGTERM:
            ended.set()

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop, ended
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def _progress(until: "Until", *, quiet: bool) -> Iterator[Any]:
    """Live lines on stderr, one per candidate, with its verdict so far."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    screen = Console(stderr=True)
    if quiet or not screen.is_terminal:
        yield lambda _: None
        return
    with Live(console=screen, transient=True, refresh_per_second=4) as live:

        def tell(run: "ComparisonRun") -> None:
            most = f" of at most {until.records:,}" if until.records < 2**62 else ""
            head = f"{run.asked:,}{most} records asked about; Ctrl-C ends with a report"
            live.update(Text("\n".join([head, *(each.conclusion.sentence for each in run.results)])))

        yield tell


def _write(report: Any, *, keep: Path | None, md: Path | None, html: Path | None, has_examples: bool) -> None:
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--keep: {keep} cannot be made: {error.strerror}") from None
        write_file(keep / "report.json", report.json())
        write_file(keep / "report.md", report.markdown(has_examples=True))
        write_file(keep / "report.html", _page(report))
    if md is not None:
        write_file(md, report.markdown(has_examples=has_examples))
    if html is not None:
        write_file(html, _page(report))


def _page(report: "CompareReport") -> str:
    from outrider.monitor.views.comparisons.page import compare_page

    return compare_page(report.data)
