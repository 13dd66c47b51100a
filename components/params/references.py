"""Names that refer to nothing. Works on the raw file, so that these are reported together with wrong types."""

from collections.abc import Collection, Mapping
from itertools import combinations
from typing import Any

SPACES = "vectors, published_vectors or contextual_vectors"


def _dictionary(raw: Any, key: str) -> dict:
    value = raw.get(key) if isinstance(raw, dict) else None
    return value if isinstance(value, dict) else {}


def _list(raw: dict, key: str) -> list:
    value = raw.get(key)
    return value if isinstance(value, list) else []


def references(raw: Any, of_studies: Mapping[str, Collection[str]]) -> list[str]:
    """Names that point at nothing. Works on the raw file, so that these are reported beside wrong types. What `of_studies` names of a
    section is there for studies alone: the main pipeline does not make it."""
    problems = []

    def main(section: str) -> dict:
        return {name: block for name, block in _dictionary(raw, section).items() if name not in of_studies.get(section, ())}

    text = {**_dictionary(raw, "corpora"), **_dictionary(raw, "mixes")}
    tables = {
        "corpora": _dictionary(raw, "corpora"), "corpora or mixes": text, "tokenizers": main("tokenizers"),
        "encodings": main("encodings"), "tokenizers of either file": _dictionary(raw, "tokenizers"),
        "encodings of either file": _dictionary(raw, "encodings"), "models": main("models"), "tasks": _dictionary(raw, "tasks"),
        "models of either file": _dictionary(raw, "models"),
        "models or checkpoints or derived": {**main("models"), **_dictionary(raw, "checkpoints"), **main("derived")},
        "models or checkpoints or derived of either file": {
            **_dictionary(raw, "models"), **_dictionary(raw, "checkpoints"), **_dictionary(raw, "derived"),
        },
        SPACES: {
            **_dictionary(raw, "vectors"), **_dictionary(raw, "published_vectors"), **_dictionary(raw, "contextual_vectors"),
        },
        "evaluations": _dictionary(raw, "evaluations"), "alignments": _dictionary(raw, "alignments"),
        "studies": _dictionary(raw, "studies"),
    }  # fmt: skip

    missing: dict[tuple[str, str], list[str]] = {}  # (name, table) -> where it stands: a slip in one place is told once, not in forty

    def check(path: str, name: Any, table: str) -> None:
        if isinstance(name, str) and name not in tables[table]:
            missing.setdefault((name, table), []).append(path)

    for section, key, table in (
        ("mixes", "corpus", "corpora"), ("tokenizers", "corpus", "corpora or mixes"), ("encodings", "corpus", "corpora or mixes"),
        ("encodings", "tokenizer", "tokenizers"), ("models", "encoding", "encodings"), ("vectors", "corpus", "corpora or mixes"),
        ("derived", "start", "models or checkpoints or derived"), ("studies", "model", "models of either file"),
        ("studies", "encoding", "encodings of either file"),
        ("alignments", "source", SPACES), ("alignments", "target", SPACES), ("contextual_vectors", "corpus", "corpora or mixes"),
        ("contextual_vectors", "model", "models or checkpoints or derived"), ("generations", "model", "models or checkpoints or derived"),
        ("evaluations", "corpus", "corpora or mixes"), ("groups", "first", "corpora or mixes"), ("groups", "second", "corpora or mixes"),
    ):  # fmt: skip
        for name, block in _dictionary(raw, section).items():
            # what stands in the studies' file may be made of what is theirs, too
            own = " of either file" if key in ("tokenizer", "encoding", "start") and name in of_studies.get(section, ()) else ""
            check(f"{section}.{name}.{key}", _dictionary({"b": block}, "b").get(key), table + own)
    for name in sorted(_dictionary(raw, "corpora").keys() & _dictionary(raw, "mixes").keys()):
        problems.append(f"mixes.{name}: corpora.{name} has the same name, and both would be written to data/corpora/{name}")
    for name, mix in _dictionary(raw, "mixes").items():
        for key in ("tasks", "also_held_out"):
            for i, task in enumerate(_list(_dictionary({"m": mix}, "m"), key)):
                check(f"mixes.{name}.{key}[{i}]", task, "tasks")
    for name, alignment in _dictionary(raw, "alignments").items():
        for i, control in enumerate(_list(_dictionary({"a": alignment}, "a"), "controls")):
            check(f"alignments.{name}.controls[{i}]", control, "alignments")
            if control == name:
                problems.append(
                    f"alignments.{name}.controls[{i}]: {name} can't be a control of itself; name "
                    "alignments of halves of one period"
                )
    for name, history in _dictionary(raw, "histories").items():
        for i, period in enumerate(_list(_dictionary({"h": history}, "h"), "periods")):
            check(f"histories.{name}.periods[{i}]", period, SPACES)
    for name, study in _dictionary(raw, "studies").items():
        study = _dictionary({"s": study}, "s")
        for i, task in enumerate(_list(study, "tasks")):
            check(f"studies.{name}.tasks[{i}]", task, "tasks")
        for i, evaluation in enumerate(_list(study, "evaluations")):
            check(f"studies.{name}.evaluations[{i}]", evaluation, "evaluations")
        for variant, block in _dictionary(study, "variants").items():
            check(
                f"studies.{name}.variants.{variant}.encoding", _dictionary({"v": block}, "v").get("encoding"), "encodings of either file"
            )
            if on := str(_dictionary({"v": block}, "v").get("on")).partition("/")[2]:
                check(f"studies.{name}.variants.{variant}.on", on, "tasks")
            for i, task in enumerate(_list(_dictionary(_dictionary({"v": block}, "v"), "by"), "tasks")):
                check(f"studies.{name}.variants.{variant}.by.tasks[{i}]", task, "tasks")
    for name, derived in _dictionary(raw, "derived").items():
        folder, _, on = str(_dictionary({"d": derived}, "d").get("on")).partition("/")
        if on and (table := {"tasks": "tasks", "encoded": "encodings"}.get(folder)):
            check(f"derived.{name}.on", on, table)
        for i, task in enumerate(_list(_dictionary(_dictionary({"d": derived}, "d"), "by"), "tasks")):
            check(f"derived.{name}.by.tasks[{i}]", task, "tasks")
    finetune, adapt, search = _dictionary(raw, "finetune"), _dictionary(raw, "adapt"), _dictionary(raw, "search")
    tuned = {"search": search, **{key: _dictionary(raw, key) for key in ("seed_grid", "tickets", "learning_curve")}}
    for section, block in {"finetune": finetune, "adapt": adapt, **tuned}.items():
        for i, task in enumerate(_list(block, "tasks")):
            check(f"{section}.tasks[{i}]", task, "tasks")
        for i, model in enumerate(_list(block, "models")):
            check(f"{section}.models[{i}]", model, "models or checkpoints or derived")
    for key, table in (("models", "models or checkpoints or derived"), ("evaluations", "evaluations")):
        for i, name in enumerate(_list(_dictionary(raw, "evaluate"), key)):
            check(f"evaluate.{key}[{i}]", name, table)
    for model in _list(finetune, "models"):
        if isinstance(model, str) and model not in _dictionary(finetune, "recipes"):
            problems.append(f"finetune.recipes: no recipe for model {model!r}")
    for section, block in tuned.items():
        for i, model in enumerate(_list(block, "models")):
            if isinstance(model, str) and model not in _dictionary(finetune, "recipes"):
                problems.append(f"{section}.models[{i}]: no recipe for model {model!r} in finetune.recipes")
    for i, method in enumerate(_list(adapt, "methods")):
        if isinstance(method, str) and method not in _dictionary(adapt, "recipes"):
            known = ", ".join(_dictionary(adapt, "recipes")) or "none"
            problems.append(f"adapt.methods[{i}]: no {method!r} in adapt.recipes (there are: {known})")
    efficiency = _dictionary(raw, "efficiency")
    for i, task in enumerate(_list(efficiency, "tasks")):
        check(f"efficiency.tasks[{i}]", task, "tasks")
    for point, block in _dictionary(efficiency, "points").items():
        model = _dictionary({"p": block}, "p").get("model")
        check(f"efficiency.points.{point}.model", model, "models or checkpoints or derived of either file")
    check("baselines.tokenizer", _dictionary(raw, "baselines").get("tokenizer"), "tokenizers")
    for folder, sections in (
        ("models", ("models", "checkpoints", "derived")), ("vectors", ("vectors", "published_vectors", "contextual_vectors")),
        ("align", ("alignments", "histories", "groups")),
    ):  # fmt: skip
        for section, other in combinations(sections, 2):
            for name in sorted(_dictionary(raw, section).keys() & _dictionary(raw, other).keys()):
                problems.append(f"{other}.{name}: {section}.{name} has the same name, and both would be written to data/{folder}/{name}")
    for (name, table), places in missing.items():
        others = f"; named so {len(places)} times, the last is {places[-1]}" if len(places) > 1 else ""
        problems.append(f"{places[0]}: no {name!r} in {table} (there are: {', '.join(sorted(tables[table])) or 'none'}){others}")
    return problems
