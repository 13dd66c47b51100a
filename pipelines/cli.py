"""Sesame, a declarative lab for language-model pre-training.

Modules that are slow to import are imported inside the commands that use them.
"""

import errno
import io
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from typing import Annotated, Literal

import typer

from components import params
from components.core import storage
from components.core.errors import SesameError

app = typer.Typer(help=__doc__.splitlines()[0], add_completion=False, pretty_exceptions_enable=False)

MOST = 1024
"""Stages, or runs, side by side, and rounds: more can only be a slip of the finger."""
Targets = Annotated[
    list[str] | None,
    typer.Argument(metavar="[STAGE]...", help="Stages (pretrain@bert) or groups (finetune). Default: all stages."),
]
Jobs = Annotated[int | None, typer.Option(min=1, max=MOST, help="How many stages run side by side.")]
Lines = Annotated[bool, typer.Option("--lines", help="Print every line of every stage, as where there is no terminal.")]
Benchmark = Literal["glue", "superglue"]


Settings = Annotated[
    list[str],
    typer.Option("-S", "--set", metavar="KEY=VALUE", help="Set a key of params.yaml to a value (YAML). Repeatable."),
]
exp = typer.Typer(
    help=("Run variants of the pipeline in separate git worktrees, and compare them."), no_args_is_help=True
)
app.add_typer(exp, name="exp")


@app.callback(invoke_without_command=True)
def main(context: typer.Context) -> None:
    """Sesame, a declarative lab for language-model pre-training."""
    if context.invoked_subcommand is None:
        from pipelines import terminal

        terminal.table(["", ""], [[f"sesame {name}", text] for name, text in FIRST.items()])
        terminal.say("all commands: sesame --help; the options of one: sesame run --help")


FIRST = {
    "doctor": "check whether this machine has what a run needs",
    "try": "pre-train one small model in two minutes, and look at it",
    "run": "build what params.yaml declares; what is unchanged is skipped",
    "plan": "list what a run would do, with time and memory",
    "study NAME": "compare variants of a pre-training, each with several seeds",
    "exp run": "try other params in a worktree, and `sesame exp diff` compares",
    "up": "start the pages of Prefect and MLflow",
}
"""The commands that `sesame` alone shows."""


def plain_name(text: str) -> str:
    """Check that an argument is the name of an entry of a folder in data/, not a path that leads out of it."""
    if not re.fullmatch(r"\w[\w.-]*", text):
        raise typer.BadParameter(f"{text!r} is not a name; write the name as in params.yaml, without a path")
    return text


def in_utf8(arguments: Iterable[object]) -> None:
    """Raises SesameError for an argument that is not UTF-8. File names may be in any encoding."""
    for given in arguments:
        for text in given if isinstance(given, list) else [given]:
            try:
                if isinstance(text, str):
                    text.encode()
            except UnicodeEncodeError as error:
                wrong = f"byte 0x{ord(text[error.start]) & 0xFF:02x} at {error.start}"
                cure = "convert it, or set LC_ALL=C.UTF-8 if the terminal does send UTF-8"
                raise SesameError(f"{ascii(text[:60])} is not UTF-8 ({wrong}); {cure}") from None


PLACES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")
"""Variables by which git tells its hooks, and commands of `git rebase --exec`, which repository they are in. A worktree
run has its own worktree; with these variables git would write to the user's index instead."""


def _say_whose_code() -> None:
    """Print a warning if the current folder is a checkout with its own code, and this process runs other code.

    A worktree run is exempt: its folder is below the checkout whose code runs.
    """
    here, own = Path.cwd(), Path(__file__).resolve().parents[1]
    if Path(here, "pipelines/cli.py").exists() and not here.is_relative_to(own):
        said = f"sesame: this command belongs to {own} and runs the code there, not the code in {here}"
        print(f"{said}; `make install` here installs a command for this checkout", file=sys.stderr)


def clear(function: Callable) -> Callable:
    """A subcommand whose errors are printed as one line."""

    @wraps(function)
    def checked(*args, **kwargs):
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a terminal without Unicode gets the other characters escaped
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
            sys.exit("sesame: git is not in PATH, and DVC needs it; install git, or correct PATH")
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            sys.exit(f"sesame: {str(error.filename)[:60]!r}... is longer than a name of a file can be; give a shorter one")
        except KeyboardInterrupt:
            sys.exit(130)
        except RuntimeError as error:
            if not _interrupted(error):
                raise
            sys.exit(130)

    return checked


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: Python makes another one of it where it comes while a class of a library is made."""
    return isinstance(error, KeyboardInterrupt) or (error is not None and _interrupted(error.__cause__ or error.__context__))


def command(function: Callable) -> Callable:
    """A subcommand of `sesame`."""
    return app.command()(clear(function))


@command
def run(
    stages: Targets = None,
    force: Annotated[bool, typer.Option("--force", help="Run unchanged stages too.")] = False,
    recheck: Annotated[
        bool,
        typer.Option(
            "--recheck", help="Fetch sources again that params.yaml does not pin: files, hub sets without revision."
        ),
    ] = False,
    jobs: Jobs = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another flow in this checkout.")] = False,
    lines: Lines = False,
) -> None:
    """Run stages and all stages that they need, in parallel. Unchanged stages are skipped."""
    _build(stages or [], force, recheck, jobs, wait, lines)


@app.command("try")
@clear
def try_out(jobs: Jobs = None) -> None:
    """Pre-train one small GPT, show what it has learnt, and write a page about it. Takes about two minutes."""
    from pipelines import trial

    _build(trial.TARGETS, False, False, jobs, False)
    trial.show()


@command
def study(
    name: Annotated[
        str | None, typer.Argument(help="A study of studies/params. Without a name: list all studies.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Run unchanged stages too.")] = False,
    jobs: Jobs = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another flow in this checkout.")] = False,
    lines: Lines = False,
) -> None:
    """Run a study (an ablation): pre-train and score each variant with each seed, and print the table of results."""
    from pipelines import studies, terminal

    if name is None:
        terminal.table(["study", "variants", "question"], studies.listed())
        return
    studies.clear_removed(name)
    terminal.say(studies.power(name))
    _build([f"study@{name}"], force, False, jobs, wait, lines)


@command
def runs(
    study: Annotated[
        str | None, typer.Option("--study", help="List the runs of this study: one line per variant and seed.")
    ] = None,
    last: Annotated[int, typer.Option(min=1, max=50_000, help="How many fine-tunings to list.")] = 30,
) -> None:
    """List runs recorded in MLflow: the newest fine-tunings, or a study's variants with their budgets and scores."""
    from pipelines import studies, terminal

    terminal.table(*(studies.recorded(study) if study is not None else studies.tunings(last)))


@command
def champion(name: Annotated[str, typer.Argument(metavar="STUDY", help="A study that has been run.")]) -> None:
    """Register the model of a study that has the highest mean score on dev in MLflow, under the alias `champion`."""
    from pipelines import studies, terminal

    terminal.say(studies.champion(name))


@contextmanager
def _while_prefect_lives() -> Iterator[None]:
    """Says in one line that Prefect's server went away or no longer answers, and ends the process. Raises SesameError
    when it answers with errors: its database may be gone."""
    from httpx import TransportError
    from prefect.exceptions import PrefectHTTPStatusError

    kept = "finished stages are kept: run the command again"
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
            f"Prefect's server answers {answer}: see its log, its database may be down; {kept} once it works"
        ) from None


def _build(targets: list[str], force: bool, recheck: bool, jobs: int | None, wait: bool, lines: bool = False) -> None:
    """Run the flow, show its results, and exit with the status of the flow. `lines`: those of all stages, on a terminal, too."""
    from pipelines import terminal
    from pipelines.machines import services
    from pipelines.money import forecast

    params.load()  # every mistake in it is said before anything runs
    services.foreign(services.PREFECT)  # as is an address that can't be one
    # a wrong name, a broken dvc.yaml, and what can't fit: before a server is started
    plan, seconds = forecast.announce(targets, force, recheck, jobs, wait)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # a closed terminal stops the stages, too; nohup keeps them
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    services.use_prefect()
    from prefect.utilities.urls import url_for

    from pipelines import flow, results
    from pipelines.execution import cancellation, ledger, views

    logging.raiseExceptions = False  # a server that goes away is said once, below, and not for every line that was meant for it
    with _while_prefect_lives(), cancellation.without_heartbeats(), nullcontext() if lines else terminal.board(seconds):
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
    pool: Annotated[
        str, typer.Argument(metavar="POOL", help="A Prefect work pool, as named by `run_on` in params.yaml.")
    ],
    queue: Annotated[
        list[str] | None, typer.Option("--queue", help="Take only stages that use this resource. Repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many stages run at once.")] = 1,
) -> None:
    """Run stages that other machines send to a work pool, in git worktrees of this clone, until Ctrl-C."""
    from pipelines.machines import services

    services.use_prefect()
    from pipelines.machines import pool_worker

    pool_worker.serve(pool, queue or [], limit)


@command
def plan(
    stages: Targets = None,
    jobs: Annotated[int | None, typer.Option(min=1, max=MOST, help="How many stages would run side by side.")] = None,
) -> None:
    """List the stages of a run in order, with estimated time and memory. Fails if a stage can't fit."""
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
    name: Annotated[
        str | None, typer.Argument(metavar="[MODEL|STUDY]", help="A model or a study. Default: one line for each.")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="The whole project so far: all runs recorded in MLflow, including failed and stopped ones."
        ),
    ] = False,
    tokens: Annotated[
        float | None, typer.Option(min=1, max=1e15, help="Predict cost and loss of a pre-training on this many tokens.")
    ] = None,
    times: Annotated[
        float | None,
        typer.Option(
            min=0.001, max=1e9, help="Like --tokens, as a multiple of the tokens that the model was trained on."
        ),
    ] = None,
    answers: Annotated[
        bool,
        typer.Option("--answers", help="Measure the cost of inference now: time, energy and money for 1000 answers."),
    ] = False,
) -> None:
    """Show the cost of a model, a study or the project: time, core-hours, FLOPs, kWh, CO2e, money."""
    from pipelines.money import price_tags

    if everything + (name is not None) > 1 or (tokens is not None) + (times is not None) + answers > 1:
        both = "more than one of MODEL, STUDY and --all, or of --tokens, --times and --answers"
        raise SesameError(f"{both}; give at most one of each group")
    if (tokens or times or answers) and name is None:
        raise SesameError("--tokens, --times and --answers need a model, e.g. `sesame price MODEL --times 10`")
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
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model that a point of `efficiency` runs unchanged.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="BUDGET",
            help="A share of the model's cost: 0.5x-latency, 0.5x-latency-of-32 (batch of 32), 0.5x-flops, 0.5x-bytes "
            "or 0.5x-energy.",
        ),
    ],
    task: Annotated[
        str | None, typer.Option("--task", help="A task of `efficiency.tasks`. Default: the first one.")
    ] = None,
) -> None:
    """Show which way to make a model smaller is best on dev within a budget, among the points of `efficiency`."""
    from pipelines.money.compress import compress

    compress(model, to, task)


@command
def batch(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model of `models` in params.yaml.")],
    step: Annotated[
        int, typer.Argument(metavar="STEP", help="A step of the pre-training, counted from 1 as in its log.")
    ],
    rows: Annotated[int, typer.Option(min=1, help="How many rows of the batch to show.")] = 8,
) -> None:
    """Show the batch of one pre-training step: text, masks, pairs, and the documents of each row."""
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
            metavar="MODEL",
            help="A model of data/models that generates text, left to right or into masks.",
            parser=plain_name,
        ),
    ],
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The prompt or source text. [MASK] marks a place to fill.")
    ] = "",
    file: Annotated[Path | None, typer.Option(help="A file with one text per line, in place of TEXT.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="A new file for the texts, one per line. Default: the terminal.")
    ] = None,
    how: Annotated[
        Literal["greedy", "beam", "sample"],
        typer.Option(help="Decoding: the most likely token each time, beam search, or sampling."),
    ] = "greedy",
    max_new_tokens: Annotated[int, typer.Option(min=1, help="How many tokens to generate at most.")] = 64,
    beams: Annotated[int, typer.Option(min=2, help="Beam size, for --how beam.")] = 4,
    length_penalty: Annotated[float, typer.Option(help="Length-penalty exponent, for --how beam.")] = 0.6,
    temperature: Annotated[float, typer.Option(help="Softmax temperature, for --how sample.")] = 1.0,
    top_k: Annotated[
        int, typer.Option(min=0, help="Sample from this many most likely tokens, for --how sample. 0 means all.")
    ] = 0,
    top_p: Annotated[
        float, typer.Option(help="Sample from the most likely tokens up to this total probability, for --how sample.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random numbers, for --how sample.")] = 1,
    repetition_penalty: Annotated[
        float,
        typer.Option(help="Above 1, tokens that occurred before become less likely. For --how greedy and sample."),
    ] = 1.0,
    rounds: Annotated[
        int,
        typer.Option(min=0, max=MOST, help="For masked models: how often each generated token is masked and predicted again."),
    ] = 0,
) -> None:
    """Generate text with a model: a translation, a filled gap, or a continuation. A masked model fills each [MASK]."""
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
        raise SesameError(f"{file}: no such file; name a file with one text per line")
    if out:
        storage.unused_path(out)
    lines = [line for _, line in read_lines(SourceFile(str(file), lambda: open(file, "rb")))] if file else [text]  # noqa: SIM115
    if rounds and not filling.fills(model):
        raise SesameError(f"--rounds is for masked models, and {model} generates from left to right; leave it out")
    writer = filling.load(model, rounds) if filling.fills(model) else writing.of_params(params.load(), model)
    sources = [writer.source(line) for line in lines]
    if len(sources) == 1 and not out and how != "beam":  # no token is revised later
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
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="A text with one word between asterisks: 'a *play* in context'.")
    ],
    layer: Annotated[
        int | None, typer.Option(help="Layer of the model; 0 is the input embeddings. Default: the last layer.")
    ] = None,
    vectors: Annotated[
        str | None,
        typer.Option(
            help="Word vectors of data/vectors, to show the neighbours without context too.", parser=plain_name
        ),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(help="The corpus whose validation text is searched. Default: the model's own.", parser=plain_name),
    ] = None,
    segments: Annotated[int, typer.Option(min=1, max=10**9, help="How many segments of the corpus to search.")] = 2000,
    top: Annotated[int, typer.Option(min=1, max=10**9, help="How many neighbours to show.")] = 8,
) -> None:
    """Show the nearest neighbours of a word in its context, by a model, and without context, by word vectors."""
    from components.embeddings import contexts
    from pipelines import terminal

    all_params = params.load()
    spaces = (*all_params.vectors, *all_params.published_vectors, *all_params.contextual_vectors)
    for option, name, known in (("corpus", corpus, (*all_params.corpora, *all_params.mixes)), ("vectors", vectors, spaces)):
        if name is not None and name not in known:
            raise SesameError(f"--{option}: no {name!r} in params.yaml (there are: {', '.join(known) or 'none'})")
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
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text that the model reads.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A new file. Default: data/attention/MODEL.html, which is overwritten."),
    ] = None,
) -> None:
    """Draw the attention of each head of each layer over a text, as a page of heat maps."""
    from components.evaluations.attention import page
    from pipelines import terminal

    terminal.say(str(page.write(model, text, out)))


@command
def profile(
    name: Annotated[str | None, typer.Argument(help="A profile. Without a name: list all profiles.")] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="FOLDER", help="The folder of the local files, for a *_files profile."),
    ] = None,
) -> None:
    """Add a set of tasks to params.yaml: GLUE, SuperGLUE or others, from the hub or from local files."""
    from pipelines import profiles, terminal

    if name is None:
        terminal.table(["profile", ""], [list(row) for row in profiles.listed().items()])
        return
    for change in profiles.merge(name, data):
        terminal.say(change)
    terminal.say("undo with `git checkout params.yaml`; `sesame plan` lists the stages to run")


@command
def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A", help="A fine-tuned model, MODEL:random for the same model from random weights, or a baseline."
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The model or baseline to compare A with.")],
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task of `finetune.tasks` in params.yaml.")],
    split: Annotated[str, typer.Option(help="The split of the task, e.g. dev or test.")] = "dev",
) -> None:
    """Compare two models or baselines on the same examples: A minus B, with a 95 % interval over seeds and examples."""
    from components.comparison import verdicts
    from pipelines import terminal

    all_params = params.load()
    if task not in all_params.tasks or split not in all_params.tasks[task].splits:
        cure = "give a task of `finetune.tasks` and one of its splits"
        raise SesameError(f"no task {task!r} with a split {split!r} in params.yaml; {cure}")
    if task not in all_params.finetune.tasks:
        known = ", ".join(all_params.finetune.tasks)
        raise SesameError(f"no model is fine-tuned on {task!r}; give a task of finetune.tasks in params.yaml ({known})")
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
    """The folder of the predictions of `MODEL`, `MODEL:random` or a baseline, and their name there.

    Raises SesameError if there are none.
    """
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
    seed: Annotated[
        int | None, typer.Option(help="The seed whose predictions are written. Default: the first.")
    ] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Leave out test sets without predictions.")] = False,
    out: Annotated[str, typer.Option(metavar="FOLDER", help="The folder for the zip file.")] = "data/submissions",
) -> None:
    """Write a model's predictions as the zip file that a leaderboard accepts, and check it."""
    from components.tasks import submission
    from pipelines import terminal

    written = submission.write(benchmark, model, seed, partial, out)
    terminal.table(["file", "predictions"], [[name, f"{rows:,}"] for name, rows in written.files.items()])
    for reason in written.absent:
        terminal.say(f"absent: {reason}")
    for name, count in written.replaced.items():
        terminal.say(f"{name}: {count:,} answers of the model are not a label; the first label is written instead")
    terminal.say(f"{written.path}{' (partial)' if written.absent else ''}: names, headers, counts and labels are valid")


@command
def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model of data/models.", parser=plain_name)],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A new folder. Default: data/export/MODEL.")
    ] = None,
    classifier: Annotated[
        bool, typer.Option("--classifier", help="Include the head of the task that the model was tuned on.")
    ] = False,
) -> None:
    """Write a model and its tokenizer in the format of `transformers`, and check that both compute the same."""
    from components.derive.checkpoints import export as exports
    from pipelines import terminal

    folder, difference = exports.export(model, out, classifier)
    reader = "AutoModelForSequenceClassification" if classifier else "AutoModel"
    terminal.say(f"{folder}: for {reader} and AutoTokenizer; largest difference {difference:.2g}")


@command
def vectors(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Word vectors of data/vectors, or an alignment.", parser=plain_name)
    ],
    method: Annotated[
        str | None, typer.Option(help="For an alignment: the method whose maps are used. Default: the first.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="A new folder. Default: data/export/NAME.")] = None,
) -> None:
    """Write word vectors in word2vec's text format, for gensim, MUSE and VecMap.

    An alignment gives the vectors of both sides in one space, and the test words.
    """
    from components.embeddings import interchange
    from pipelines import terminal

    for path in interchange.export(params.load(), name, method, out):
        terminal.say(str(path))


@command
def verify(
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove damaged objects, so that the stages that need them run again.")
    ] = False,
) -> None:
    """Check DVC's cache for damaged objects, which DVC itself would restore as results."""
    from pipelines import terminal
    from pipelines.execution import verify as cache

    damaged, count = cache.damaged()
    for one in damaged:
        terminal.say(f"damaged: {one.path}, {', '.join(one.uses) or 'which no current stage needs'}", "red")
        if remove:
            one.path.unlink()  # so that DVC does not restore it, and runs the stages again that need it
    terminal.say(f"{count} objects read, {len(damaged)} damaged{' and removed' * bool(damaged and remove)}", "bold")
    if damaged and not remove:
        cure = "`sesame verify --remove` removes these objects, the next `sesame run` builds them again"
        raise SesameError(f"DVC's cache is damaged; {cure}")


@command
def join(
    head: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="The node on which the stage runs. It prints the whole command.")
    ],
    wait: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long to wait until that node can be reached.")
    ] = 600,
) -> None:
    """Join a training that runs on another machine with `run: {launcher: torchrun}`, until it ends."""
    from components.stages import launch
    from pipelines import terminal

    launch.join(head, wait, terminal.say)


@command
def up() -> None:
    """Start the Prefect server and the MLflow page, unless they already run."""
    from pipelines import terminal
    from pipelines.execution import views
    from pipelines.machines import services

    for service in services.SERVICES:
        address = services.up(service)
        terminal.say(f"{service.name:8} {views.link([]) if service is services.MLFLOW else address}")


@command
def down() -> None:
    """Stop the Prefect server and the MLflow page."""
    from pipelines import terminal
    from pipelines.machines import services

    terminal.say(f"stopped: {', '.join(services.down()) or 'nothing, as no server was running'}")


@command
def status() -> None:
    """Show which servers run, and their addresses."""
    from pipelines import terminal
    from pipelines.machines import services

    terminal.table(["service", "state", "address"], [list(row) for row in services.status()])


@command
def doctor() -> None:
    """Check whether this machine has what a run needs: Python, packages, git, memory, disk, GPU, package index, servers."""
    from pipelines import terminal
    from pipelines.doctor import examined

    checks = examined()
    terminal.table(["", "", ""], [[own.name, own.value, own.cure] for own in checks])
    if missing := [own.name for own in checks if own.cure and own.needed]:
        raise SesameError(f"not ready to run: {', '.join(missing)}")
    terminal.say("ready to run", "bold")


@command
def serve() -> None:
    """Serve the deployments of prefect.yaml: flows by schedule and from Prefect's page. Ctrl-C ends it and its
    flows."""
    from pipelines.machines import services

    services.use_prefect()
    from pipelines import deployments

    with _while_prefect_lives():
        deployments.serve_all()


@exp.command("run")
@clear
def exp_run(
    settings: Settings,
    name: Annotated[
        str | None, typer.Option("-n", "--name", help="The name of the experiment. Default: made from the values.")
    ] = None,
    jobs: Jobs = None,
) -> None:
    """Run the whole pipeline with other values, in its own git worktree. The result is a DVC experiment and a run in
    MLflow."""
    _lanes(settings, False, name, 1, jobs)


@exp.command("sweep")
@clear
def exp_sweep(
    settings: Annotated[
        list[str], typer.Option("-S", "--set", metavar="KEY=A,B,C", help="Values for a key of params.yaml. Repeatable.")
    ],
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST,
            help="How many worktree runs are active at once. Default: one per GPU if `resources` names gpu, one if it "
            "names anything else, eight if stages run in a pool, otherwise one per two cores.",
        ),
    ] = None,
) -> None:
    """Run the whole pipeline with each combination of values, each in its own git worktree."""
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
        terminal.say(f"{len(variants)} worktree runs, {min(jobs, len(variants))} at a time")
    ended = sweep.run(variants, jobs, options=["--jobs", str(stage_jobs)] if stage_jobs else [])
    rows = [
        [lane.name, " ".join(f"{key}={value}" for key, value in lane.overrides.items()), lane.state, f"{lane.seconds:.1f}",
         f"{sum(lane.added.values()) / 2**20:.1f}", lane.scores]
        for lane in ended
    ]  # fmt: skip
    terminal.say("")
    terminal.table(["experiment", "overrides", "state", "seconds", "new MiB", "mean score of tasks"], rows)
    added = {md5: size for lane in ended for md5, size in lane.added.items()}
    size = sum(added.values()) / 2**20
    terminal.say(f"{size:.1f} MiB of new data in DVC's cache; the worktrees of finished runs are removed")
    if done := [lane.name for lane in ended if lane.state == "done"]:
        if len(ended) == 1:
            experiments.show(done[0], "HEAD")
        for lane in ended:
            if lane.page.exists():
                terminal.say(f"report   {lane.page}")
        terminal.say(f"MLflow   {views.link([]) or 'start its page with `sesame up`'}")
        terminal.say(f"next     `sesame exp diff {done[0]}`, `dvc exp show --only-changed`, `dvc exp apply {done[0]}`")
    bad = [lane for lane in ended if lane.state in ("failed", "crashed")]
    for lane in bad:
        terminal.say(f"{lane.name} {lane.state}: {lane.problem}" + f"; {lane.log}" * lane.folder.exists(), "red")
    if bad:
        terminal.say("`sesame exp list` shows the worktrees that are left, `sesame exp clean` removes them")
    if any(lane.state == "stopped" for lane in ended):
        terminal.say("stopped; finished stages are in DVC's cache, and the same command continues from there")
        sys.exit(130)
    if bad:
        sys.exit(1)


@exp.command("diff")
@clear
def exp_diff(
    name: Annotated[
        str, typer.Argument(metavar="A", help="An experiment, a commit, or `workspace` for the files in this folder.")
    ],
    other: Annotated[
        str, typer.Argument(metavar="B", help="The experiment, commit or `workspace` to compare A with.")
    ] = "HEAD",
) -> None:
    """Compare two experiments: params that differ, scores with intervals, cost. Differences are A minus B."""
    from pipelines.worktrees import experiments

    experiments.show(name, other)


@exp.command("list")
@clear
def exp_list() -> None:
    """List the worktree runs that are active, failed or crashed, with the disk space that they take."""
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
    terminal.table(["worktree run", "state", "overrides", "MiB", ""], rows)
    terminal.say(f"{len(rows)} worktree run{'s' * (len(rows) != 1)}; finished ones: `dvc exp show --only-changed`")


@exp.command("clean")
@clear
def exp_clean(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Names as in `sesame exp list`. Default: all that failed or crashed."),
    ] = None,
) -> None:
    """Remove the worktrees of failed and crashed runs. Active ones are kept."""
    from pipelines import terminal
    from pipelines.worktrees import lanes

    freed = lanes.clean(names or [])
    for name, size in freed.items():
        terminal.say(f"removed {name}: {size / 2**20:.1f} MiB")
    terminal.say(f"{sum(freed.values()) / 2**20:.1f} MiB freed" if freed else "nothing to remove")


if __name__ == "__main__":
    app()
