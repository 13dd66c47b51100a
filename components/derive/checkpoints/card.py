"""The model card of an exported model: what it is, what it was made of, under which licences."""

import json
from collections.abc import Iterator
from pathlib import Path

from components import params
from components.core import storage
from components.stages import registry
from components.stages.outputs import read_json


def card(name: str, kind: str, loaded_by: str, lineage: list[dict]) -> str:
    """The model card: licences, what the model is, and each step of its lineage."""
    licences = licences_of(name)
    steps = [
        " ".join(f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}" for key, value in step.items())
        for step in lineage
    ]
    license_name = json.dumps("; ".join(licences) or "not stated")
    front = f"library_name: transformers\nlicense: other\nlicense_name: {license_name}"
    stated = ", ".join(licences) or "not stated"
    made = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))
    return f"""---
{front}
---
# {name}

A {kind} model for `{loaded_by}`, written by Sesame. Licences of the weights or texts it was made of: {stated}.

How it was made:

{made}
"""


def licences_of(name: str) -> list[str]:
    """The licences of a model's imported weights, of its training texts and of the tasks that it was tuned on, by
    params.yaml.

    None, with a line that says so, where params.yaml has been edited since: it may name other texts than the model has
    read.
    """
    if not Path("params.yaml").exists():  # a model outside its project
        return []
    declared = params.load()
    if name not in {**declared.models, **declared.checkpoints, **declared.derived}:
        return []
    behind = list(_behind(declared, name))
    paths = {f"{stage}@{item}": storage.metrics_path(stage, item) for stage, item, _ in behind}
    measured = {stage: read_json(path) for stage, path in paths.items() if path.exists()}
    current = registry.declared_now(declared, measured)
    if other := next((stage for stage in measured if stage not in current), None):
        print(
            f"the card states no licence: {other} ran with other params than params.yaml has now; "
            "take the edit back, or run the stage again"
        )
        return []
    return list(dict.fromkeys(licence for *_, licence in behind if licence is not None))


def _behind(declared: params.Params, name: str) -> Iterator[tuple[str, str, str | None]]:
    """The stages that a model comes from: stage, name, and the licence of what the stage fetches."""
    root = declared.root(name)
    if root in declared.checkpoints:
        yield "checkpoint", root, declared.checkpoints[root].licence
    else:
        yield "pretrain", root, None
    for encoding, _ in declared.read_by(name):
        yield "encode", encoding, None
        corpus = declared.encodings[encoding].corpus
        if mix := declared.mixes.get(corpus):
            yield "mix", corpus, None
            if not mix.only_tasks:
                yield "corpus", mix.corpus, declared.corpora[mix.corpus].licence
            yield from (("task", task, declared.tasks[task].licence) for task in mix.tasks)
        else:
            yield "corpus", corpus, declared.corpora[corpus].licence
    steps = []
    while name in declared.derived:
        steps.append((name, declared.derived[name]))
        name = steps[-1][1].start
    for name, step in reversed(steps):
        yield "derive", name, None
        yield from (("task", task, declared.tasks[task].licence) for task in step.tasks)
