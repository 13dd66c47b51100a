"""Tables and figures of README and docs from `docs/results`: runs of profiles, with data that the default does not have."""

import re

from components.report.markdown import RESULTS, find, interval, rows, spread, table


def published_pairs() -> str:
    """Accuracies on published minimal pairs."""
    body = [
        [row["evaluation"], row["model"], f"{float(row['score']):.3f} ± {float(row['error']):.3f}", f"{float(row['random']):.3f}",
         f"{float(row['unigram']):.3f}", f"{float(row['bigram']):.3f}", f"{float(row['items']):,.0f}"]
        for row in rows("pairs", RESULTS) if row["group"] == "all"
    ]  # fmt: skip
    return table(["set", "model", "right ± error", "random weights", "unigram", "bigram", "pairs"], body)


def digits() -> str:
    """Models of pixels, tuned with few labels, beside their random twins and what needs no model."""
    names = {"pixels": "logistic regression over pixels in their places", "logistic_regression": "logistic regression over counts of greys"}
    by_model: dict[str, dict[str, str]] = {}
    for row in rows("digits", RESULTS):
        cells = by_model.setdefault(names.get(row["model"], row["model"].replace("_", " ")), {})
        cells[row["init"]] = spread(row)
        cells["flops"] = f"{float(row['flops']) / 1e12:.1f}" if row["flops"] else "–"
    columns = ("flops", "pretrained", "random", "baseline")
    body = [[model, *(cells.get(key, "–") for key in columns)] for model, cells in by_model.items()]
    return table(["", "FLOPs, 1e12", "pre-trained", "random weights", "no model"], body)


def digit(model: str, init: str) -> str:
    """The accuracy of a model of pixels: `0.603 ± 0.057`."""
    return spread(find("digits", RESULTS, model=model, init=init))


def inverse_problems() -> str:
    """The share of problems that any of a model's first answers solves, by how the answers are searched."""
    counts = ("of_1", "of_2", "of_4", "of_8", "of_16")
    body = [
        [row["problem"], row["search"], *(f"{float(row[count]):.3f}" if row[count] else "" for count in counts)]
        for row in rows("inverse_problems", RESULTS)
    ]
    return table(["problem", "answers", *(count.replace("_", " ") for count in counts)], body)


def solved(problem: str, search: str, count: str) -> str:
    """The share of inverse problems that any of so many answers solves: `0.930`."""
    of_search = [row for row in rows("inverse_problems", RESULTS) if row["search"] == search]
    [row] = [row for row in of_search if row["problem"].startswith(problem)]
    return f"{float(row[count]):.3f}"


def captions() -> str:
    """True captions of pictures of shapes, of known combinations and of new ones, by the number of shapes."""
    by_part: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows("captions", RESULTS):
        by_part.setdefault(row["pictures"], {})[row["shapes"]] = row
    body = [
        [part, of["all"]["bleu"], *(f"{float(of[count]['solved']):.3f}" for count in ("all", "1", "2", "3"))]
        for part, of in by_part.items()
    ]  # fmt: skip
    return table(["pictures", "BLEU", "true", "of one shape", "of two", "of three"], body)


def babylm() -> str:
    """BabyLM's small track: our models, what counts of words give, and published systems; the share of right pairs in percent."""
    if not (RESULTS / "babylm.csv").exists():
        return "Not run yet."
    sets = ("blimp_filtered", "supplement", "zorro")
    asked = {(row["model"], row["evaluation"]): row for row in rows("babylm", RESULTS) if row["group"] == "all"}

    def percent(row: dict[str, str], column: str, error: str = "") -> str:
        return f"{100 * float(row[column]):.1f}" + (f" ± {100 * float(row[error]):.1f}" if error else "")

    body, costs = [], []
    for model in rows("babylm_pretraining", RESULTS):
        name, of_model = model["model"].replace("_", " "), [asked[model["model"], evaluation] for evaluation in sets]
        size = f"{int(model['parameters']) / 1e6:.1f} M"
        body.append([name, size, *(percent(row, "score", "error") for row in of_model), "this page"])
        body.append(["its random weights", size, *(percent(row, "random") for row in of_model), ""])
        # a masked model has none: n-grams read one side
        grams = f"4-grams {float(model['ngram_loss']):.2f}, " if model["ngram_loss"] else ""
        costs.append(
            f"{name}: {float(model['loss']):.2f} nats a token ({grams}"
            f"without context {float(model['context_free_loss']):.2f}), {float(model['flops']):.1e} FLOPs, "
            f"{float(model['seconds']) / 60:.0f} minutes of a busy machine, {float(model['kwh']):.3f} kWh."
        )
    for order in ("unigram", "bigram", "trigram"):
        body.append([order, "", *(percent(asked[model["model"], name], order) for name in sets), "counts of the same text"])
    for row in rows("babylm_published", RESULTS):
        body.append([f"{row['system']}, {row['words']} words", "", row["blimp_filtered"] or "–", "–", row["zorro"] or "–", row["source"]])
    head = ["system", "parameters", "filtered BLiMP", "supplement", "Zorro", "from"]
    return "\n\n".join([table(head, body), *costs, _learned()])


def _learned() -> str:
    """The losses of BabyLM's models while they read."""
    curves: dict[str, list[dict[str, str]]] = {}
    for row in rows("babylm_curves", RESULTS):
        curves.setdefault(row["model"], []).append(row)
    body = [[name.replace("_", " "), *(f"{float(row['loss']):.2f}" for row in curve)] for name, curve in curves.items()]
    tokens = [f"{int(row['tokens']) / 1e6:.1f} M" for row in next(iter(curves.values()))]
    return table(["nats a token after", *tokens], body)


def probes() -> str:
    """For each probe the score of every layer, and the references of the best one."""
    layers: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows("layers", RESULTS):
        layers.setdefault((row["evaluation"], row["model"]), []).append(row)
    body = []
    for overall in (row for row in rows("probes", RESULTS) if row["group"] == "all"):
        by_layer = layers[overall["evaluation"], overall["model"]]
        layer = re.search(r", layer (\d+)$", overall["protocol"])  # none where each pre-training has one of its own
        best = by_layer[int(layer[1])] if layer else {"control": "", "compression": ""}
        extra = [f"{float(best[key]):.{digits}f}" if best[key] else "–" for key, digits in (("control", 3), ("compression", 1))]
        reference = next(f"{float(overall[key]):.3f}" for key in ("by_word", "word_before") if overall.get(key))
        body.append([
            overall["evaluation"].replace("_", " "), overall["model"], f"{float(overall['score']):.3f} ± {float(overall['error']):.3f}",
            f"{float(overall['random']):.3f}", reference, *extra, " ".join(f"{float(row['score']):.3f}" for row in by_layer),
        ])  # fmt: skip
    head = ["read", "model", "score ± error", "random weights", "by word, or word before", "control", "compression", "by layer"]
    return table(head, body)


def sentence_probes() -> str:
    """For each task and model the score, its baselines, and the score of every layer."""
    if not (RESULTS / "sentence_probes.csv").exists():
        return "Not run yet."
    layers: dict[tuple[str, str], list[str]] = {}
    for row in rows("sentence_layers", RESULTS):
        layers.setdefault((row["evaluation"], row["model"]), []).append(f"{float(row['score']):.3f}")
    body = [
        [
            row["evaluation"].removesuffix("_probe"), row["model"], row["measure"],
            f"{float(row['score']):.3f} ± {float(row['error']):.3f}",
            f"{float(row['random']):.3f} ± {float(row['random_std']):.3f}",
            interval(row, "difference", "low", "high", "+"), row["verdict"], f"{float(row['bag_of_words']):.3f}",
            " ".join(layers[row["evaluation"], row["model"]]),
        ]
        for row in rows("sentence_probes", RESULTS) if row["group"] == "all"
    ]  # fmt: skip
    compared = ["random weights", "gain over random weights", "verdict", "bag of words"]
    head = ["task", "model", "measure", "score ± error", *compared, "by layer"]
    return table(head, body)


RELATIONS = ("det", "nsubj", "obj", "amod", "case", "aux")


def attention() -> str:
    """How often the best attention head of a relation finds the syntactic head of a word."""
    by_model: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows("attention", RESULTS):
        by_model.setdefault(row["model"], {})[row["group"]] = row
    body = [
        [model, f"{float(groups['all']['score']):.3f} ± {float(groups['all']['error']):.3f}", f"{float(groups['all']['random']):.3f}",
         f"{float(groups['all']['offset']):.3f}", *(f"{float(groups[group]['score']):.3f}" for group in RELATIONS)]
        for model, groups in by_model.items()
    ]  # fmt: skip
    return table(["model", "all ± error", "random weights", "offset", *RELATIONS], body)


def diagnostics() -> str:
    """Accuracies on published diagnostics, overall and by group where these are few."""
    if not (RESULTS / "diagnostics.csv").exists():
        return "Not run yet."
    table_rows, body = rows("diagnostics", RESULTS), []
    for row in (row for row in table_rows if row["group"] == "all"):
        by_group = [other for other in table_rows if (other["model"], other["evaluation"]) == (row["model"], row["evaluation"])][1:]
        shown = ", ".join(f"{other['group'].replace('_', ' ')} {float(other['score']):.2f}" for other in by_group)
        groups = shown if len(by_group) < 8 else "–"
        right = f"{float(row['score']):.3f} ± {float(row['error']):.3f}"
        chance = f"{float(row['chance']):.3f}" if row["chance"] else "–"
        about = [row["evaluation"].replace("_", " "), row["model"], right, f"{float(row['random']):.3f}", row["verdict"], chance]
        body.append([*about, groups, f"{float(row['items']):,.0f}"])
    return table(["set", "model", "right ± error", "random weights", "verdict", "chance", "by group", "items"], body)


def warmup() -> str:
    """Bits per byte of the default's BERT after a million tokens, by warm-up and learning rate."""
    return _bits_by_seed("warmup", {"optimizer": "optimizer", "warmup": "warm-up", "learning_rate": "learning rate"})


def recipe_trials() -> str:
    """Bits per byte of the default's models as they were before, and with changes."""
    return _bits_by_seed("recipe_trials", {"model": "model", "change": "change"})


def _bits_by_seed(file: str, columns: dict[str, str]) -> str:
    """A line for each setting, which `columns` of the file say and the table names, and a column for each seed."""
    by_setting: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows(file, RESULTS):
        by_seed = by_setting.setdefault(tuple(row[column] for column in columns), {})
        by_seed[row["seed"]] = f"{float(row['bits_per_byte']):.3f}"
    seeds = sorted({seed for by_seed in by_setting.values() for seed in by_seed}, key=int)
    body = [[*setting, *(by_seed.get(seed, "–") for seed in seeds)] for setting, by_seed in by_setting.items()]
    return table([*columns.values(), *(f"seed {seed}" for seed in seeds)], body)


def ranking() -> str:
    """Of a question the sentence that answers it and one that does not: how often, and how far up, the right one is first."""
    body = [
        [row["by"], *(f"{float(row[metric]):.3f} ± {float(row[f'{metric}_std']):.3f}" for metric in ("mrr", "ndcg"))]
        for row in rows("ranking", RESULTS)
    ]
    return table(["by", "MRR", "NDCG"], body)


def cove() -> str:
    """Frozen features of models that were trained on the same captions; bold where they are beyond noise ahead of random weights."""
    by_model: dict[str, dict[tuple[str, str], dict[str, str]]] = {}
    for row in rows("cove", RESULTS):
        by_model.setdefault(row["model"], {})[row["task"], row["init"]] = row
    tasks = {"stsb": "STS-B", "snli": "SNLI"}
    starts = {"pretrained": "pre-trained", "token_vectors": "its token vectors", "random": "random weights"}
    body = []
    for model, of_model in by_model.items():
        cells = [model.removeprefix("cove_").replace("_", " "), f"{int(of_model['stsb', 'pretrained']['tokens']) / 1e6:.2f} M"]
        for task in tasks:
            pretrained, token_vectors, random = (of_model[task, start] for start in starts)
            ahead = "**" * (random["verdict"] == "higher")
            cells += [f"{ahead}{spread(pretrained)}{ahead}", spread(token_vectors), spread(random)]
        body.append(cells)
    return table(["training", "tokens", *(f"{task}, {start}" for task in tasks.values() for start in starts.values())], body)


GLUE = {"cola": "CoLA", "sst2": "SST-2", "stsb_glue": "STS-B", "mnli": "MNLI"}


def glue() -> str:
    """BabyLM's models tuned on GLUE, beside their other starts and the best baseline; bold: beyond noise ahead of both."""
    table_rows = rows("glue", RESULTS)
    models = list(dict.fromkeys(row["model"] for row in table_rows if row["init"] != "baseline"))
    body = []
    for task, shown in GLUE.items():
        of_task = [row for row in table_rows if row["task"] == task]
        baselines = (row for row in of_task if row["init"] == "baseline" and row["mean"])
        best = max(baselines, key=lambda row: float(row["mean"]))
        cells = [f"{shown}, {best['metric'].replace('_', ' ')}"]
        for model in models:
            starts = {row["init"]: row for row in of_task if row["model"] == model}
            others = [starts[init] for init in ("token_vectors", "random")]
            ahead = "**" * all(row["verdict"] == "higher" for row in others)
            cells += [f"{ahead}{spread(starts['pretrained'])}{ahead}", *map(spread, others)]
        body.append([*cells, f"{spread(best)} ({best['model'].replace('_', ' ')})"])
    names = ("", ", its token vectors", ", random weights")
    heads = (f"{model.replace('_', ' ')}{name}" for model in models for name in names)
    return table(["task", *heads, "best baseline"], body)


def frozen(training: str, task: str) -> str:
    """Frozen features of a model of captions, and those of its architecture with random weights: `0.406 ± 0.010, 0.537 ± 0.009 random`."""
    of_start = {start: find("cove", RESULTS, model=f"cove_{training}", task=task, init=start) for start in ("pretrained", "random")}
    return f"{spread(of_start['pretrained'])}, {spread(of_start['random'])} random"
