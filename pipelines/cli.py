"""The `sesame` command. What is slow to import is imported where it is used."""

import io
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Literal

import typer

from components import params
from components.core import storage
from components.core.errors import SesameError

app = typer.Typer(help=__doc__.splitlines()[0], no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Targets = Annotated[
    list[str] | None, typer.Argument(metavar="[STAGE]...", help="A stage (pretrain@bert) or a group (finetune); all without.")
]
Benchmark = Literal["glue", "superglue"]


Settings = Annotated[list[str], typer.Option("-S", "--set", metavar="KEY=VALUE", help="A value of params.yaml (YAML); may be given often.")]
exp = typer.Typer(help="Variants of the pipeline side by side, each in a git worktree of its own.", no_args_is_help=True)
app.add_typer(exp, name="exp")


def plain_name(text: str) -> str:
    """A name of what stands in a folder of data/, and no path that leads out of it."""
    if not re.fullmatch(r"\w[\w.-]*", text):
        raise typer.BadParameter(f"{text!r} is no name; write it as params.yaml does, without a path")
    return text


def in_utf8(arguments: Iterable[object]) -> None:
    """Raises SesameError for an argument in another encoding, which is no text; names of files may be in any."""
    for given in arguments:
        for text in given if isinstance(given, list) else [given]:
            try:
                if isinstance(text, str):
                    text.encode()
            except UnicodeEncodeError as error:
                wrong = f"byte 0x{ord(text[error.start]) & 0xFF:02x} at {error.start}"
                cure = "convert it, or set LC_ALL=C.UTF-8 where the terminal is right"
                raise SesameError(f"{ascii(text[:60])} is not UTF-8 ({wrong}); {cure}") from None


PLACES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")
"""What git tells its hooks, and what `git rebase --exec` runs, of where it is at work. In a lane, which has a worktree
of its own, git would go by it and write to the user's index."""


def _say_whose_code() -> None:
    """A word where this folder is a checkout with code of its own, which is not what this process runs. In a lane, below the checkout that
    it is of, it need not be."""
    here, own = Path.cwd(), Path(__file__).resolve().parents[1]
    if Path(here, "pipelines/cli.py").exists() and not here.is_relative_to(own):
        said = f"sesame: this command is that of {own}, and runs the code there, not what is in {here}"
        print(f"{said}; `make install` here gives this checkout its own", file=sys.stderr)


def clear(function: Callable) -> Callable:
    """A subcommand that says what is wrong in a line."""

    @wraps(function)
    def checked(*args, **kwargs):
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a terminal without Unicode is no reason to stop: what it has not is escaped
                stream.reconfigure(errors="backslashreplace")
        for variable in PLACES:
            os.environ.pop(variable, None)
        _say_whose_code()
        try:
            in_utf8(kwargs.values())
            function(*args, **kwargs)
        except SesameError as error:
            sys.exit(f"sesame: {error}")
        except FileNotFoundError as error:
            if error.filename != "git":
                raise
            sys.exit("sesame: no git in PATH, by which DVC knows the project's files; install it, or mend PATH")
        except KeyboardInterrupt:
            sys.exit(130)

    return checked


def command(function: Callable) -> Callable:
    """A subcommand of `sesame`."""
    return app.command()(clear(function))


@command
def run(
    stages: Targets = None,
    force: Annotated[bool, typer.Option("--force", help="Run unchanged stages too.")] = False,
    recheck: Annotated[
        bool, typer.Option("--recheck", help="Fetch again what params.yaml does not fix: files, hub without revision.")
    ] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="How many stages run side by side.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another flow in this checkout.")] = False,
) -> None:
    """Build stages and all they need, in parallel; what is unchanged is left as it is."""
    _build(stages or [], force, recheck, jobs, wait)


@app.command("try")
@clear
def try_out(jobs: Annotated[int | None, typer.Option(min=1, help="How many stages run side by side.")] = None) -> None:
    """Pre-train one small GPT, show what it has learnt, and write a page about it: some two minutes."""
    from pipelines import trial

    _build(trial.TARGETS, False, False, jobs, False)
    trial.show()


@command
def study(
    name: Annotated[str | None, typer.Argument(help="Without a name: list them.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Run unchanged stages too.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="How many stages run side by side.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another flow in this checkout.")] = False,
) -> None:
    """Run a study of params.yaml: its variants over its seeds, and their table."""
    from pipelines import studies, terminal

    if name is None:
        terminal.table(["study", "variants", "question"], studies.listed())
        return
    studies.clear_removed(name)
    terminal.say(studies.power(name))
    _build([f"study@{name}"], force, False, jobs, wait)


@command
def runs(
    study: Annotated[str | None, typer.Option("--study", help="Of a study: its variants and seeds, each a line.")] = None,
    last: Annotated[int, typer.Option(min=1, help="How many fine-tunings.")] = 30,
) -> None:
    """List what MLflow has: the newest fine-tunings, or a study's variants with their budgets and scores."""
    from pipelines import studies, terminal

    terminal.table(*(studies.recorded(study) if study else studies.tunings(last)))


@command
def champion(name: Annotated[str, typer.Argument(metavar="STUDY")]) -> None:
    """Register the best model of a study, by its mean score on dev, in MLflow under the alias `champion`."""
    from pipelines import studies, terminal

    terminal.say(studies.champion(name))


@contextmanager
def _while_prefect_lives() -> Iterator[None]:
    """Says in one line that Prefect's server went away or no longer answers, and ends the process. Raises SesameError
    when it answers with errors: its database may be gone."""
    from httpx import TransportError
    from prefect.exceptions import PrefectHTTPStatusError

    kept = "what is done is kept, run again"
    try:
        yield
    except TransportError:
        sys.stdout.flush()
        said = f"sesame: Prefect's server went away; {kept} (`sesame status` shows the servers)"
        print(said, file=sys.stderr, flush=True)
        os._exit(1)  # at Python's exit Prefect would wait for that server again, to send what it has left
    except RuntimeError as error:  # Prefect's, as a flow begins
        if not str(error).startswith("Failed to reach API at "):
            raise
        address = str(error).removeprefix("Failed to reach API at ")
        raise SesameError(f"Prefect's server at {address} does not answer; start it, or unset PREFECT_API_URL") from None
    except PrefectHTTPStatusError as error:
        answer = f"{error.response.status_code} {error.response.reason_phrase}"
        raise SesameError(
            f"Prefect's server answers {answer}: its log says why, its database may be down; {kept} when it is well"
        ) from None


def _build(targets: list[str], force: bool, recheck: bool, jobs: int | None, wait: bool) -> None:
    """Run the flow, show what came out, and exit with what came of it."""
    from pipelines import terminal
    from pipelines.machines import services
    from pipelines.money import forecast

    params.load()  # every mistake in it is said before anything runs
    services.foreign(services.PREFECT)  # as is an address that can't be one
    # a wrong name, a broken dvc.yaml, and what can't fit: before a server is started
    plan = forecast.announce(targets, force, recheck, jobs, wait)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # a closed terminal stops the stages, too; nohup keeps them
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    services.use_prefect()
    from prefect.utilities.urls import url_for

    from pipelines import flow, results
    from pipelines.execution import cancellation, ledger, views

    logging.raiseExceptions = False  # a server that goes away is said once, below, and not for every line that was meant for it
    with _while_prefect_lives(), cancellation.without_heartbeats():
        named = flow.sesame.with_options(flow_run_name=ledger.tags().get("experiment"))
        state = named(targets, force, jobs or forecast.default_jobs(params.load()), wait, recheck, return_state=True)
    problem = state.result(raise_on_failure=False) if not state.is_completed() else None
    if isinstance(problem, SesameError):
        raise problem
    if state.is_completed():
        results.show(plan, targets)
    terminal.say(f"Prefect  {url_for('flow-run', state.state_details.flow_run_id)}")
    terminal.say(f"MLflow   {views.shown(targets)}")
    if state.is_cancelled():
        sys.exit(130)
    if not state.is_completed():
        sys.exit(1)


@command
def worker(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="As `run_on` of params.yaml says.")],
    queue: Annotated[list[str] | None, typer.Option("--queue", help="Take stages of this resource only; may be given often.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Stages at once.")] = 1,
) -> None:
    """Run stages that flows on other machines send to a work pool, in worktrees of this clone, until Ctrl-C."""
    from pipelines.machines import services

    services.use_prefect()
    from pipelines.machines import pool_worker

    pool_worker.serve(pool, queue or [], limit)


@command
def plan(
    stages: Targets = None, jobs: Annotated[int | None, typer.Option(min=1, help="How many stages would run side by side.")] = None
) -> None:
    """List stages in the order of their running, what a run would do and what that takes. Runs nothing; fails where it can't fit."""
    from pipelines import studies, terminal
    from pipelines.execution import graph
    from pipelines.money import forecast

    all_params = params.load()
    with graph.at_once():
        stages_ = graph.plan(stages or [])
        states = graph.states(stages_, away=all_params.away)
    outlook = forecast.forecast(stages_, states, all_params, jobs)
    rows = []
    for stage in stages_:
        own = outlook.estimates.get(stage.name)
        takes = [forecast.duration(own.seconds), forecast.amount(own.memory)] if own else ["", ""]
        needs = " ".join(stage.upstream[:5]) + f" and {len(stage.upstream) - 5} more" * (len(stage.upstream) > 5)
        rows.append([stage.name, states[stage.name], *takes, stage.meta.resource or "", needs])
    terminal.table(["stage", "state", "time", "memory", "resource", "needs"], rows)
    terminal.say(outlook.summary(), "bold")
    for target in stages or []:
        if target.startswith("study@"):
            terminal.say(studies.power(target.removeprefix("study@")))
    if not all_params.away:  # what fits into a worker's machine is not known here
        outlook.check()


@command
def price(
    name: Annotated[str | None, typer.Argument(metavar="[MODEL|STUDY]", help="Without: a line for each.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="The project so far: all runs of the ledger, failed and stopped ones, too.")
    ] = False,
    tokens: Annotated[float | None, typer.Option(min=1, max=1e15, help="What a pre-training of so many would cost, and bring.")] = None,
    times: Annotated[float | None, typer.Option(min=0.001, max=1e9, help="The same, of so many times the tokens that it read.")] = None,
    answers: Annotated[bool, typer.Option("--answers", help="What its answers take, measured now: time, energy, money of 1000.")] = False,
) -> None:
    """Say what a model, a study or all has cost so far: time, core-hours, FLOPs, kWh, CO2e, money; what more tokens would."""
    from pipelines.money import price_tags

    if everything + (name is not None) > 1 or (tokens is not None) + (times is not None) + answers > 1:
        raise SesameError("one of MODEL, STUDY and --all, and one of --tokens, --times and --answers")
    if (tokens or times or answers) and name is None:
        raise SesameError("--tokens, --times and --answers are about a model: `sesame price MODEL --times 10`")
    all_params = params.load()
    if answers:
        from pipelines.money.answers import answers as measured

        measured(all_params, name)
    elif everything:
        price_tags.everything(all_params)
    elif name is None:
        price_tags.overview(all_params)
    else:
        price_tags.one(all_params, name, tokens, times)


@command
def compress(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="That a point of `efficiency` runs as it is.")],
    to: Annotated[
        str, typer.Option("--to", metavar="BUDGET", help="A share and what of: 0.5x-latency, -latency-of-32, -flops, -bytes, -energy.")
    ],
    task: Annotated[str | None, typer.Option("--task", help="Of `efficiency`; without it the first.")] = None,
) -> None:
    """Say which of the ways to make a model smaller, as `efficiency` has run them, is best on dev within a budget."""
    from pipelines.money.compress import compress

    compress(model, to, task)


@command
def batch(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Of `models` in params.yaml.")],
    step: Annotated[int, typer.Argument(metavar="STEP", help="As the training's log counts them, from 1.")],
    rows: Annotated[int, typer.Option(min=1, help="How many rows of it.")] = 8,
) -> None:
    """Show what a model reads in a step of its pre-training: text, masks, pairs, the documents that each row is of."""
    from components.pretrain.batch import batch as read
    from pipelines import terminal

    shown = read(params.load(), model, step)
    for row in shown[:rows]:
        about = ", ".join([f"documents {row['documents']}", *([row["asked"]] if row.get("asked") else [])])
        terminal.say(about, "bold")
        terminal.say(row["text"])
        if "target" in row:
            terminal.say(f"→ {row['target']}")
    terminal.say(f"{min(rows, len(shown))} of {len(shown)} rows of step {step}; the same in every run with these params", "dim")


@command
def generate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A model of data/models that writes: from left to right, or where a text has holes.", parser=plain_name
        ),
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A source, or a beginning; [MASK] marks a hole.")] = "",
    file: Annotated[Path | None, typer.Option(help="A text a line, in place of TEXT.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where the texts go, a line each; the terminal by default.")] = None,
    how: Annotated[Literal["greedy", "beam", "sample"], typer.Option(help="The likeliest piece each time, beams, or draws.")] = "greedy",
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 64,
    beams: Annotated[int, typer.Option(min=2, help="Of --how beam.")] = 4,
    length_penalty: Annotated[float, typer.Option(help="Of --how beam: power of the length that divides.")] = 0.6,
    temperature: Annotated[float, typer.Option(help="Of --how sample, as are the three that follow.")] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="Among so many of the likeliest; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Among the likeliest of this probability together.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    repetition_penalty: Annotated[float, typer.Option(help="Of all but beams: pieces met before are less likely.")] = 1.0,
    rounds: Annotated[
        int, typer.Option(min=0, help="Of a masked model: how often each piece that it wrote is hidden and written anew.")
    ] = 0,
) -> None:
    """Have a model write: a translation, what fills a hole, how a text goes on. A masked model fills each [MASK]."""
    from pydantic import TypeAdapter, ValidationError

    from components.generate import filling, writing
    from components.text.sources.file import SourceFile
    from components.text.sources.text import lines as read_lines
    from pipelines import terminal

    given = {
        "greedy": {"repetition_penalty": repetition_penalty}, "beam": {"beams": beams, "length_penalty": length_penalty},
        "sample": {
            "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed, "repetition_penalty": repetition_penalty,
        },
    }[how]  # fmt: skip
    options = {"beams": (beams, 4), "length_penalty": (length_penalty, 0.6), "temperature": (temperature, 1.0), "top_k": (top_k, 0),
               "top_p": (top_p, 1.0), "seed": (seed, 1), "repetition_penalty": (repetition_penalty, 1.0)}  # fmt: skip
    needs = {"beams": "beam", "length_penalty": "beam", "repetition_penalty": "greedy or sample"}
    if idle := [name for name, (value, default) in options.items() if name not in given and value != default]:
        option = f"--{idle[0].replace('_', '-')}"
        raise SesameError(f"{option} has no effect with --how {how}: it needs --how {needs.get(idle[0], 'sample')}")
    try:
        decoding = TypeAdapter(params.HowWritten).validate_python({"kind": how, "max_new_tokens": max_new_tokens, **given})
    except ValidationError as error:
        problem = error.errors()[0]
        raise SesameError(f"--{str(problem['loc'][-1]).replace('_', '-')}: {problem['msg']}") from None
    if file and not file.is_file():
        raise SesameError(f"{file}: no such file")
    if out:
        storage.unused(out)
    lines = [line for _, line in read_lines(SourceFile(str(file), lambda: open(file, "rb")))] if file else [text]  # noqa: SIM115
    if rounds and not filling.fills(model):
        raise SesameError(f"--rounds is for models that fill holes, and {model} writes from left to right")
    writer = filling.load(model, rounds) if filling.fills(model) else writing.of_params(params.load(), model)
    sources = [writer.source(line) for line in lines]
    if len(sources) == 1 and not out and how != "beam":  # nothing is taken back, so that it can be shown as it comes
        for piece in writer.stream(sources[0], decoding):
            print(piece, end="", flush=True)
        print()
        return
    texts = [" ".join(writer.text(ids).splitlines()) for ids in writer.write(sources, decoding, batch_size=64)]
    if out:
        with storage.output(out) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in texts), encoding="utf-8")
        terminal.say(f"{len(texts):,} texts in {out}")
    else:
        for line in texts:
            print(line)


@command
def neighbours(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model of data/models.", parser=plain_name)],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="With the word between stars: 'a *play* in context'.")],
    layer: Annotated[int | None, typer.Option(help="0 is below all context; the last one by default.")] = None,
    vectors: Annotated[
        str | None, typer.Option(help="Of data/vectors: the word's neighbours without context, beside.", parser=plain_name)
    ] = None,
    corpus: Annotated[
        str | None, typer.Option(help="Whose validation text is looked through; the model's own by default.", parser=plain_name)
    ] = None,
    segments: Annotated[int, typer.Option(min=1, help="How many segments of it.")] = 2000,
    top: Annotated[int, typer.Option(min=1, help="How many neighbours.")] = 8,
) -> None:
    """Show the nearest neighbours of a word in its context, by a model, and without it, by word vectors."""
    from components.embeddings import contexts
    from pipelines import terminal

    all_params = params.load()
    own = corpus or contexts.corpus_of(all_params, model)
    read, found = contexts.neighbours(model, text, own, layer, segments, top)
    terminal.say(f"{model}, layer {read}, among the words of {segments:,} segments of {own}", "bold")
    terminal.table(["cosine", "in context"], [[f"{score:.3f}", shown] for score, shown in found])
    if vectors:
        marked = contexts.marked(text)
        word = marked.text[marked.start : marked.end]
        terminal.say(f"{vectors}: {word} without context", "bold")
        terminal.table(["cosine", "word"], [[f"{score:.3f}", other] for score, other in contexts.without_context(vectors, word, top)])


@command
def attention(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model of data/models.", parser=plain_name)],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What it reads.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A new file; by default data/attention/MODEL.html, which is written anew."),
    ] = None,
) -> None:
    """Draw what each head of each layer attends to in a text, as a page of heat maps."""
    from components.evaluations.attention import page
    from pipelines import terminal

    terminal.say(str(page.write(model, text, out)))


@command
def profile(
    name: Annotated[str | None, typer.Argument(help="Without a name: list them.")] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="FOLDER", help="Where the local files of a *_files profile lie.")] = None,
) -> None:
    """Merge a set of tasks into params.yaml: GLUE, SuperGLUE, others, from the hub or from local files."""
    from pipelines import profiles, terminal

    if name is None:
        terminal.table(["profile", ""], [list(row) for row in profiles.listed().items()])
        return
    for change in profiles.merge(name, data):
        terminal.say(change)
    terminal.say("undo with `git checkout params.yaml`; `sesame plan` lists what is to run")


@command
def compare(
    a: Annotated[
        str, typer.Argument(metavar="A", help="A fine-tuned model, MODEL:random for its architecture from random weights, or a baseline.")
    ],
    b: Annotated[str, typer.Argument(metavar="B")],
    task: Annotated[str, typer.Argument(metavar="TASK")],
    split: Annotated[str, typer.Option(help="Which examples.")] = "dev",
) -> None:
    """Hold two models or baselines against each other on the same examples: the difference, its 95 % interval over seeds and examples."""
    from components.comparison import verdicts
    from pipelines import terminal

    all_params = params.load()
    if task not in all_params.tasks or split not in all_params.tasks[task].splits:
        raise SesameError(f"no split {split!r} of a task {task!r} in params.yaml")
    if task not in all_params.finetune.tasks:
        raise SesameError(f"no model is fine-tuned on {task!r} (finetune.tasks in params.yaml: {', '.join(all_params.finetune.tasks)})")
    places = {side: [_predictions(all_params, side, task)] for side in (a, b)}
    metric = (all_params.tasks[task].splits[split].metrics or all_params.tasks[task].metrics)[0]
    examples, scored = verdicts.sides(all_params, task, split, metric, places)
    difference = verdicts.difference(scored[a], scored[b])
    [verdict] = verdicts.verdicts([difference])
    runs = " and ".join(f"{count} run{'s' * (count > 1)}" for count in difference.runs)
    terminal.say(
        f"{task} {split}, {metric} over {examples:,} examples, {runs}: {a} {difference.a:.3f}, {b} {difference.b:.3f}, "
        f"difference {difference.shown}: {verdict}"
    )


def _predictions(all_params: params.Params, side: str, task: str) -> tuple[Path, str]:
    """Where those of `MODEL`, `MODEL:random` or a baseline stand, and under which name. Raises SesameError where there are none."""
    if side in all_params.baselines.methods:
        return Path("data/baselines", task), side
    name, _, init = side.partition(":")
    init = init or "pretrained"
    if name not in all_params.finetune.models or init not in all_params.finetune.inits:
        known, inits = ", ".join(all_params.finetune.models), ", ".join(all_params.finetune.inits)
        raise SesameError(
            f"no fine-tuned model {name}:{init} (finetune.models: {known}; inits: {inits}; "
            f"baselines: {', '.join(all_params.baselines.methods)})"
        )
    return Path("data/scores", name, task), init


@command
def submit(
    benchmark: Annotated[Benchmark, typer.Argument(help="The leaderboard.")],
    model: Annotated[str, typer.Argument(help="A fine-tuned model.")],
    seed: Annotated[int | None, typer.Option(help="Of the run whose predictions are sent; the first by default.")] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Leave out test sets that are not at hand.")] = False,
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where to write.")] = "data/submissions",
) -> None:
    """Write the zip that a leaderboard takes from a model's predictions, and check it."""
    from components.tasks import submission
    from pipelines import terminal

    written = submission.write(benchmark, model, seed, partial, out)
    terminal.table(["file", "predictions"], [[name, f"{rows:,}"] for name, rows in written.files.items()])
    for reason in written.absent:
        terminal.say(f"absent: {reason}")
    for name, count in written.replaced.items():
        terminal.say(f"{name}: {count:,} answers of the model are no label; the first label stands in their place")
    terminal.say(f"{written.path}{' (partial)' if written.absent else ''}: names, headers, counts and label words are right")


@command
def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model of data/models.", parser=plain_name)],
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="A new folder; data/export/MODEL by default.")] = None,
    classifier: Annotated[bool, typer.Option("--classifier", help="With the head of the task that it was tuned on.")] = False,
) -> None:
    """Write a model and its tokenizer so that `transformers` reads them, and check that it computes the same."""
    from components.derive.checkpoints import export as exports
    from pipelines import terminal

    folder, difference = exports.export(model, out, classifier)
    reader = "AutoModelForSequenceClassification" if classifier else "AutoModel"
    terminal.say(f"{folder}: for {reader} and AutoTokenizer; largest difference {difference:.2g}")


@command
def vectors(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Vectors of data/vectors, or an alignment.", parser=plain_name)],
    method: Annotated[str | None, typer.Option(help="Of an alignment: whose maps; the first by default.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="A new folder; data/export/NAME by default.")] = None,
) -> None:
    """Write vectors as word2vec's text, of an alignment both sides in one space and the test words: for gensim, MUSE,
    VecMap."""
    from components.embeddings import interchange
    from pipelines import terminal

    for path in interchange.export(params.load(), name, method, out):
        terminal.say(str(path))


@command
def verify(
    remove: Annotated[bool, typer.Option("--remove", help="Take damaged objects out, so that what needs them is built anew.")] = False,
) -> None:
    """Read DVC's cache and say what in it is damaged. DVC alone takes it for good, and hands it out as a result."""
    from pipelines import terminal
    from pipelines.execution import verify as cache

    damaged, count = cache.damaged()
    for one in damaged:
        terminal.say(f"damaged: {one.path}, {', '.join(one.uses) or 'which no present stage needs'}", "red")
        if remove:
            one.path.unlink()  # so that DVC does not restore it, and builds anew what needs it
    terminal.say(f"{count} objects read, {len(damaged)} damaged{' and removed' * bool(damaged and remove)}", "bold")
    if damaged and not remove:
        raise SesameError("`sesame verify --remove` takes them out; the next `sesame run` builds anew what needs them")


@command
def join(
    head: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Of the node that the stage runs on; it prints this line.")],
    wait: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="How long a head that is not there is waited for.")] = 600,
) -> None:
    """Take part in a training that runs on another machine by `run: {launcher: torchrun}`, until it is done."""
    from components.stages import launch
    from pipelines import terminal

    launch.join(head, wait, terminal.say)


@command
def up() -> None:
    """Start the Prefect server and the MLflow page, if they are not up."""
    from pipelines import terminal
    from pipelines.execution import views
    from pipelines.machines import services

    for service in services.SERVICES:
        address = services.up(service)
        terminal.say(f"{service.name:8} {views.link([]) if service is services.MLFLOW else address}")


@command
def down() -> None:
    """Stop both servers."""
    from pipelines import terminal
    from pipelines.machines import services

    terminal.say(f"stopped: {', '.join(services.down()) or 'nothing was up'}")


@command
def status() -> None:
    """Say which servers are up."""
    from pipelines import terminal
    from pipelines.machines import services

    terminal.table(["service", "state", "address"], [list(row) for row in services.status()])


@command
def serve() -> None:
    """Serve the deployments of prefect.yaml from this process: runs by schedule and from Prefect's page. Ctrl-C ends it and its runs."""
    from pipelines.machines import services

    services.use_prefect()
    from pipelines import deployments

    with _while_prefect_lives():
        deployments.serve_all()


@exp.command("run")
@clear
def exp_run(
    settings: Settings,
    name: Annotated[str | None, typer.Option("-n", "--name", help="Of the experiment; made from the values by default.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="How many stages run side by side.")] = None,
) -> None:
    """Run the whole pipeline with other values, in a lane; the result is an experiment of DVC and a run in MLflow."""
    _lanes(settings, False, name, 1, jobs)


@exp.command("sweep")
@clear
def exp_sweep(
    settings: Annotated[list[str], typer.Option("-S", "--set", metavar="KEY=A,B,C", help="Values of params.yaml; may be given often.")],
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many lanes run side by side: one per two cores, one per GPU where `resources` name gpu, else one where they name "
            "anything; eight where stages run in a pool.",
        ),
    ] = None,
) -> None:
    """Run all combinations of values, each in a lane."""
    from pipelines.worktrees import sweep

    lanes, cores = jobs or sweep.default_jobs(params.load()), os.cpu_count() or 1
    _lanes(settings, True, None, lanes, max(1, min(4, cores // lanes)) if lanes > 1 else None)


def _lanes(settings: list[str], several: bool, name: str | None, jobs: int, stage_jobs: int | None) -> None:
    from pipelines import terminal
    from pipelines.execution import views
    from pipelines.worktrees import experiments, overrides, sweep

    params.load()
    variants = overrides.variants(settings, Path("params.yaml").read_text(encoding="utf-8"), several, name)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup keeps it running
            signal.signal(number, signal.default_int_handler)
    if several:
        terminal.say(f"{len(variants)} lanes, {min(jobs, len(variants))} at a time")
    ended = sweep.run(variants, jobs, options=["--jobs", str(stage_jobs)] if stage_jobs else [])
    rows = [
        [lane.name, " ".join(f"{key}={value}" for key, value in lane.overrides.items()), lane.state, f"{lane.seconds:.1f}",
         f"{sum(lane.added.values()) / 2**20:.1f}", lane.scores]
        for lane in ended
    ]  # fmt: skip
    terminal.say("")
    terminal.table(["experiment", "overrides", "state", "seconds", "new MiB", "mean score of tasks"], rows)
    added = {md5: size for lane in ended for md5, size in lane.added.items()}
    terminal.say(f"{sum(added.values()) / 2**20:.1f} MiB of new data in DVC's cache; worktrees of what is done are removed")
    if done := [lane.name for lane in ended if lane.state == "done"]:
        if len(ended) == 1:
            experiments.show(done[0], "HEAD")
        for lane in ended:
            if lane.page.exists():
                terminal.say(f"report   {lane.page}")
        terminal.say(f"MLflow   {views.link([]) or 'start its page with `sesame up`'}")
        terminal.say(f"go on: `sesame exp diff {done[0]}`, `dvc exp show --only-changed`, `dvc exp apply {done[0]}`")
    bad = [lane for lane in ended if lane.state in ("failed", "crashed")]
    for lane in bad:
        terminal.say(f"{lane.name} {lane.state}: {lane.problem}" + f"; {lane.log}" * lane.folder.exists(), "red")
    if bad:
        terminal.say("`sesame exp list` shows what is left of them, `sesame exp clean` removes it")
    if any(lane.state == "stopped" for lane in ended):
        terminal.say("stopped; the stages that were done are in DVC's cache, and the same command takes them from there")
        sys.exit(130)
    if bad:
        sys.exit(1)


@exp.command("diff")
@clear
def exp_diff(
    name: Annotated[str, typer.Argument(metavar="A", help="An experiment, a commit, or `workspace` for the files as they are here.")],
    other: Annotated[str, typer.Argument(metavar="B", help="What it is held against.")] = "HEAD",
) -> None:
    """Hold one experiment against another in one screen: params that differ, scores with their intervals, cost. Always A less B."""
    from pipelines.worktrees import experiments

    experiments.show(name, other)


@exp.command("list")
@clear
def exp_list() -> None:
    """List the lanes that run, and those that failed or crashed, with the disk they take."""
    from pipelines import terminal
    from pipelines.worktrees import lanes

    rows = [
        [
            lane.name,
            lane.state,
            " ".join(f"{key}={value}" for key, value in lane.overrides.items()),
            f"{lanes.disk(lane.folder) / 2**20:.1f}",
            lane.problem,
        ]
        for lane in lanes.present()
    ]
    terminal.table(["lane", "state", "overrides", "MiB", ""], rows)
    terminal.say(f"{len(rows)} lane{'s' * (len(rows) != 1)}; experiments that are done: `dvc exp show --only-changed`")


@exp.command("clean")
@clear
def exp_clean(
    names: Annotated[list[str] | None, typer.Argument(metavar="[LANE]...", help="All that failed or crashed by default.")] = None,
) -> None:
    """Remove failed and crashed lanes, never one that runs."""
    from pipelines import terminal
    from pipelines.worktrees import lanes

    freed = lanes.clean(names or [])
    for name, size in freed.items():
        terminal.say(f"removed {name}: {size / 2**20:.1f} MiB")
    terminal.say(f"{sum(freed.values()) / 2**20:.1f} MiB freed" if freed else "nothing to remove")


if __name__ == "__main__":
    app()
