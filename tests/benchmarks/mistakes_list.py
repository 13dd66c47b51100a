"""Deliberate mistakes, by area. Those of one line are nearest to what a slip of the hand does; each is one that could be made."""

from typing import NamedTuple


class Mistake(NamedTuple):
    """One change of one file."""

    name: str
    file: str
    old: str
    """Occurs once in the file."""
    new: str
    tests: str
    """That should notice, as pytest names them, with spaces between."""


TESTS = {
    "corpora": "tests/corpora/test_corpora.py", "objectives": "tests/objectives/test_objectives.py",
    "inputs": "tests/objectives/test_masked_inputs.py",
    "parity": "tests/models/test_parity.py", "pretrain": "tests/pretrain/test_pretrain.py", "resume": "tests/test_resolve.py",
    "finetune": "tests/finetune/test_finetune.py", "metrics": "tests/tasks/test_metrics.py",
    "verdicts": "tests/tasks/test_verdicts.py", "maps": "tests/spaces/test_maps.py", "spaces": "tests/spaces/test_spaces.py",
    "contexts": "tests/spaces/test_contexts.py", "time": "tests/spaces/test_time_and_groups.py",
    "stage": "tests/test_stage.py", "graph": "tests/pipelines/test_graph.py",
}  # fmt: skip


def named(area: str, *names: str) -> str:
    return " ".join(f"{TESTS[area]}::{name}" for name in names) or TESTS[area]


CLEANING, CLM = "components/corpora/cleaning.py", "components/objectives/clm/objective.py"
BATCHES = "components/objectives/examples/masked.py"
MASKS, SEGMENTS = "components/objectives/noise/tokens.py", "components/objectives/examples/segments.py"
TRANSFORMER, POSITIONS = "components/models/common/transformer.py", "components/models/common/positions.py"
BILM, CLOSURE = "components/models/bilm/model.py", "components/resolve/closure.py"
MODULE, TRAINING = "components/pretrain/module.py", "components/pretrain/training.py"
KINDS, METHODS = "components/finetune/kinds.py", "components/finetune/methods"
LOOP, STAGE = "components/finetune/loop.py", "components/stage.py"
RESUMED, MICRO = "test_killed_and_resumed_equals_uninterrupted", "test_two_processes_equal_one"
VARIANTS = "test_variants_of_bert_are_trained_and_tuned"
BOUNDARIES = "test_killed_at_any_boundary_and_resumed_ends_the_same"
DROPOUT = "test_dropout_is_drawn_anew_in_every_step_and_the_same_again"
VERDICTS = "components/tasks/verdicts.py"
JOURNAL, RETRIEVAL, GRAPH = "components/search/journal.py", "components/spaces/retrieval.py", "pipelines/graph.py"
MAPS = "components/spaces/maps.py"

MISTAKES = [
    # data
    Mistake("near-duplicates compared at .1", CLEANING, ">= self.options.near_duplicates for key", ">= 0.1 for key", named("corpora")),
    Mistake("decontamination by the letter", "components/corpora/mix.py",
            "return key_of(sentence) in self.keys", "return sentence in self.keys", named("corpora")),
    Mistake("near duplicates stay where a word was added", "components/corpora/mix.py",
            "return \" \".join(words) in self.near or not", "return not", named("corpora")),
    Mistake("a failed stage leaves its temporary output", STAGE,
            "    finally:\n        _remove(temporary)", "    finally:\n        pass", named("stage", "test_output_is_whole_or_not_there")),
    Mistake("the old output goes before the new one is whole", STAGE,
            "            _remove(temporary)\n            temporary.parent",
            "            _remove(temporary)\n            _remove(path)\n            temporary.parent",
            named("stage", "test_output_is_whole_or_not_there")),
    Mistake("stale upstreams are not seen", GRAPH,
            '"unchanged" if all(told.get(name) == "unchanged" for name in needed) else "may run"', '"unchanged"',
            named("graph", "test_unchanged_reaches_no_further_than_a_change")),
    # objectives
    Mistake("masks on special tokens", BATCHES, "return at[(tokens != SEP) & (tokens != CLS)]", "return at", named("objectives")),
    Mistake("a token is masked twice", MASKS,
            "drawn = np.where((chosen[:i] == drawn).any(0), largest, drawn)", "pass", named("objectives")),
    Mistake("the last tokens of a row are never masked", MASKS,
            "largest = sizes - counts + i", "largest = np.maximum(i, sizes - counts + i - 1)", named("objectives")),
    Mistake("workers draw the same windows", "components/pretrain/data.py",
            "turn % worker.num_workers == worker.id", "turn % worker.num_workers == 0", named("objectives")),
    Mistake("an epoch reads one shard twice", "components/objectives/examples/stream.py",
            "permutation(len(self.text.shards))", "integers(len(self.text.shards), size=len(self.text.shards))", named("objectives")),
    Mistake("a fifth replaced by drawn tokens", MASKS,
            "config.mask_share + config.random_share, drawn", "config.mask_share + 2 * config.random_share, drawn", named("objectives")),
    Mistake("the same masks in every epoch", BATCHES,
            "0 if self.config.static else epoch)", "0)", named("objectives")),
    Mistake("random pairs from the same document", SEGMENTS,
            "if waiting and documents[waiting[0]] != documents[row]:", "if waiting:", named("objectives")),
    Mistake("what a random B displaces is lost", SEGMENTS,
            "segment = stop if swapped else np.where(answer == 1, split, stop)", "segment = stop", named("objectives")),
    Mistake("the second segment of any length", SEGMENTS,
            "np.lexsort((rng.random(len(rows)), sizes[rows]))", "rng.permutation(len(rows))", named("objectives")),
    Mistake("documents see each other", CLM, "(same & causal)[:, None]", "causal.expand_as(same)[:, None]", named("objectives")),
    Mistake("loss on [CLS]", "components/objectives/examples/stream.py",
            "torch.where(following == CLS, IGNORED, following)", "following", named("objectives")),
    Mistake("bits per byte in nats", "components/objectives/scoring.py",
            'self.values[f"{part}.loss"] / np.log(2)', 'self.values[f"{part}.loss"]', named("objectives")),
    # models
    Mistake("rotary positions without the sign", POSITIONS,
            "torch.cat([-second, first], 3)", "torch.cat([second, first], 3)", named("parity")),
    Mistake("relative positions without a direction", POSITIONS, "return first + torch.where", "return torch.where", named("parity")),
    Mistake("relative positions the wrong way round", POSITIONS,
            "bucket(places[None, :] - places[:, None], causal)", "bucket(places[:, None] - places[None, :], causal)", named("parity")),
    Mistake("padding is attended to", TRANSFORMER,
            "mask = positions < lengths[:, None]", "mask = positions <= lengths[:, None]", named("parity")),
    Mistake("ELMo turns padding to the front", BILM,
            "turned = lengths[:, None] - 1 - positions", "turned = lengths.new_full((len(lengths), 1), ids.shape[1]) - 1 - positions",
            named("parity")),
    Mistake("ELMo without the residual", BILM, "x = y + x if i else y", "x = y", named("parity")),
    # pre-training
    Mistake("micro-batches normalised one by one", MODULE,
            "* part / max(1.0, counts[name])", "* part / max(1.0, counts[name] / len(micro_batches))",
            named("pretrain", MICRO)),
    Mistake("dropout not keyed by the step", MODULE,
            "            torch.manual_seed(int(uniform(self.block.seed, step, self.global_rank * len(micro_batches) + i) * 2**53))\n", "",
            named("pretrain", DROPOUT)),
    Mistake("dropout keyed by the rank", MODULE,
            "self.global_rank * len(micro_batches) + i)", "self.global_rank)", named("pretrain", MICRO)),
    Mistake("weights move after a step that was bad", MODULE,
            "        optimizer.optimizer.found_inf = self.first_bad.isfinite().float()", "        self.first_bad.isfinite().float()",
            named("pretrain", "test_a_bad_step_is_told_late_and_changes_nothing")),
    Mistake("the same dropout in every step", MODULE,
            "uniform(self.block.seed, step, self.global_rank", "uniform(self.block.seed, 0, self.global_rank",
            named("pretrain", DROPOUT)),
    Mistake("LSTM states are not resumed", MODULE,
            '        if state["carry"] is not None:', '        if state["carry"] is None:', named("pretrain", f"{BOUNDARIES}[elmo]")),
    Mistake("a checkpoint's key without the settings", TRAINING,
            "{fingerprint(roots)} {settings} {list", "{fingerprint(roots)} {list", named("resume")),
    Mistake("a checkpoint's key without the data", TRAINING,
            '    key.update((Path("data/encoded") / block.encoding / "meta.json").read_bytes())\n', "", named("resume")),
    Mistake("a journal's key without the model", JOURNAL,
            '(Path("data/models", model), Path("data/tasks", task))', '(Path("data/tasks", task),)', named("resume")),
    # what a stage depends on
    Mistake("a closure of one step", CLOSURE, "waiting += [*imported(module), ", "waiting += [", named("resume")),
    Mistake("templates are not watched", CLOSURE, "return sorted(written | read)", "return sorted(written)", named("resume")),
    Mistake("comments make stale", CLOSURE, "lines[row - 1] = lines[row - 1][:column]", "pass", named("resume")),
    Mistake("a default is not watched", "components/block.py", 'self.model_dump(mode="json"))',
            'self.model_dump(mode="json", exclude_unset=True))', named("resume")),
    Mistake("where it runs is watched", "components/block.py",
            "return isinstance(mark, RunOnly) or value", "return value", named("resume")),
    Mistake("FLOPs with fused attention", "components/flops.py",
            "sdpa_kernel(SDPBackend.MATH), ", "", named("pretrain", "test_flops_match_a_count_by_hand")),
    Mistake("norms and biases decayed", "components/optimizer.py",
            "if own.ndim > 1]", "if own.ndim > 0]", named("pretrain", "test_biases_and_norms_are_not_decayed")),
    Mistake("the validation after a save is lost", TRAINING,
            'if done and between and done % between == 0', "if False and done % between == 0", named("pretrain", f"{BOUNDARIES}[bert]")),
    Mistake("kept models are moved away", TRAINING,
            "shutil.copytree(kept / str(milestone)", "shutil.move(kept / str(milestone)", named("pretrain", f"{BOUNDARIES}[bert]")),
    Mistake("phases read in one order", TRAINING,
            "int(uniform(block.seed, number) * 2**53) if number else block.seed", "block.seed",
            named("pretrain", "test_phases_share_the_budget_out")),
    Mistake("a window goes over the end of its phase", "components/objectives/examples/phases.py",
            "last if phase is self.phases[-1] else min(last, phase.steps)", "last", named("pretrain", "test_phases_share_the_budget_out")),
    # BERT's family
    Mistake("a span hidden token by token", "components/objectives/noise/spans.py",
            "targets, edges[:, 0], config", "targets, targets, config", named("inputs")),
    Mistake("spans that meet", "components/objectives/noise/spans.py", ").all(1) & (stop > anchor)", ").any(1) & (stop > anchor)",
            named("inputs")),
    Mistake("a span over a separator", "components/objectives/noise/spans.py",
            "stop = np.minimum(anchor + length, ends[anchor])", "stop = np.minimum(anchor + length, first_words[rows] + words[rows])",
            named("inputs", "test_no_span_goes_over_a_separator")),
    Mistake("what was only counted is learnt", "components/pretrain/cost.py",
            "for module in (model, *networks):", "for module in (model,):", named("pretrain", VARIANTS)),
    Mistake("lengths of spans in tokens", "components/objectives/noise/spans.py",
            "np.append(np.flatnonzero(opens), len(tokens))", "np.arange(len(tokens) + 1)", named("inputs")),
    Mistake("a filling is always called replaced", "components/objectives/electra/objective.py",
            "replaced = (filled != original).float()", "replaced = put(ids * 0, places, places * 0 + 1, labels).float()",
            named("inputs", "test_electra_detects_as_transformers_does")),
    Mistake("the detector asked of padding", "components/objectives/electra/objective.py",
            'reduction="none") * asked)', 'reduction="none"))', named("inputs", "test_electra_detects_as_transformers_does")),
    Mistake("the likeliest filling", "components/objectives/electra/objective.py",
            "(logits.float() - noise.log()).argmax(2)", "logits.argmax(2)",
            named("inputs", "test_a_drawn_token_comes_as_often_as_it_is_likely")),
    Mistake("order asked of other texts", SEGMENTS, "    if not swapped:\n        other", "    if True:\n        other", named("inputs")),
    Mistake("no [SEP] between documents", BATCHES,
            'place = 1 + rank + document - np', "place = 1 + rank + 0 * document - 0 * np", named("inputs")),
    Mistake("layers that share nothing", TRANSFORMER, "for name in parts if i % size else ():", "for name in ():",
            named("parity", "test_layers_share_what_they_are_told_to")),
    Mistake("one slope for all heads", POSITIONS, "return torch.tensor((own + between)[:heads])", "return torch.tensor(own[:1] * heads)",
            named("parity", "test_alibi_falls_as_in_bloom")),
    # fine-tuning
    Mistake("no smoothing", KINDS,
            ", label_smoothing=self.recipe.label_smoothing)", ")",
            named("finetune", "test_class_weights_and_smoothing_are_those_of_the_libraries")),
    Mistake("scores predicted in units of the loss", KINDS,
            "(output[:, 0] * self.scale + self.centre).tolist()", "output[:, 0].tolist()",
            named("finetune", "test_regression_predicts_in_the_tasks_own_unit")),
    Mistake("scores learned without scaling", KINDS,
            "(targets - self.centre) / self.scale)", "targets - self.centre)",
            named("finetune", "test_regression_is_learned_in_units_of_the_deviation")),
    Mistake("cuts of both texts only are counted", KINDS,
            "data.cut += kept[0] < len(a) or kept[1]", "data.cut += kept[0] < len(a) and kept[1]",
            named("finetune", "test_pairs_are_joined_or_kept_apart_and_cuts_counted")),
    Mistake("the text that is to be kept whole is cut", "components/finetune/data.py",
            "        first = min(len(a), room - second)", "        first, second = fit_pair(len(a), len(b), room)",
            named("finetune", "test_a_passage_alone_is_cut_where_the_task_says_so")),
    Mistake("BitFit tunes norms", f"{METHODS}/bitfit.py",
            'if "bias" in name.rsplit(".", 1)[-1]:', 'if "bias" in name or "norm" in name:',
            named("finetune", "test_a_method_moves_its_own_weights_and_the_head_alone[bitfit]")),
    Mistake("prompts do not learn", f"{METHODS}/prompt.py",
            "(1, length)))[0].clone())", "(1, length)))[0].clone(), requires_grad=False)",
            named("finetune", "test_a_method_moves_its_own_weights_and_the_head_alone[prompt]")),
    Mistake("prompts shift the tokens' outputs", f"{METHODS}/prompt.py",
            "return torch.cat([output[:, : self.at], output[:, self.at + self.length :]], 1) if self.per_token else output",
            "return output",
            named("finetune", "test_a_prompt_has_no_output_of_its_own")),
    Mistake("layers thaw an epoch early", LOOP,
            "requires_grad_(depth <= epoch)", "requires_grad_(depth <= epoch + 1)",
            named("finetune", "test_lower_layers_learn_slower_and_thaw_later")),
    Mistake("layer decay from the head on", LOOP,
            "recipe.layer_decay ** max(0, depth - 1)", "recipe.layer_decay ** depth",
            named("finetune", "test_lower_layers_learn_slower_and_thaw_later")),
    # figures
    Mistake("an undefined Matthews correlation is 0", "components/tasks/metrics.py",
            "len(set(_gold(examples))) == 1:\n        return None", "len(set(_gold(examples))) == 1:\n        return 0.0",
            named("metrics")),
    Mistake("an interval of the examples alone", VERDICTS, "of_runs = a.variance + b.variance", "of_runs = 0.0", named("verdicts")),
    Mistake("an interval of the runs alone", VERDICTS,
            "parts = [(of_examples, blocks - 1)] + [", "parts = [", named("verdicts")),
    Mistake("answers to one question leave one by one", "components/tasks/__init__.py",
            "if example.group is None else", "if True else", named("verdicts")),
    Mistake("no correction for many comparisons", VERDICTS, "(len(values) - rank) * values[i]", "values[i]", named("verdicts")),
    Mistake("CSLS without the half", RETRIEVAL, "crowding(targets, sources, k) / 2", "crowding(targets, sources, k)", named("maps")),
    Mistake("CSLS crowded by the other side", RETRIEVAL,
            "crowding(targets, sources, k) / 2", "crowding(targets, targets, k) / 2", named("maps")),
    Mistake("Procrustes the other way", MAPS,
            "orthogonal_procrustes(source, target)[0]", "orthogonal_procrustes(target, source)[0]", named("maps")),
    Mistake("variances given back in the other side's coordinates", MAPS,
            "w_x @ u.T @ to_x[1] @ u", "w_x @ u @ to_x[1] @ u.T", named("maps")),
    Mistake("the best of a row out of too few chunks", "components/spaces/neighbours.py",
            "amax(dim=2).topk(k, dim=1)", "amax(dim=2).topk(1, dim=1)", named("maps")),
    Mistake("RCSLS forgets the neighbours of the targets", MAPS, "+ near_x.T @ z)", "+ 0 * near_x.T @ z)", named("maps")),
    Mistake("directions that the pairs say nothing of are lost", MAPS,
            "return vt.T / s @ vt + rest", "return vt.T / s @ vt + 0 * rest", named("maps")),
    Mistake("the smallest eigenvalues of the graphs", "components/spaces/evaluate.py", "k))[::-1] for side", "k)) for side", named("maps")),
    Mistake("what is asked for is a seed", "components/spaces/align.py",
            "if words[0] not in pair.pairs.test]", "if words[0]]", named("spaces")),
    Mistake("no word counts as taught", "components/spaces/align.py",
            "not pair.pairs.test[word] & taught", "not pair.pairs.test[word] & set()", named("spaces")),
    Mistake("a last dictionary of a tenth of the words", "components/spaces/self_learning.py",
            "    if keep < 1:  # the", "    if False:  # the", named("maps")),
    Mistake("pairs that are asked for are learned from", "components/spaces/dictionaries/pairs.py",
            "if pair[0] not in golds", "if pair[0]", named("spaces")),
    Mistake("a file of vectors that is cut off passes", "components/spaces/published.py",
            "if promised is not None and", "if False and", named("spaces")),
    Mistake("periods are not turned", "components/spaces/history.py",
            "units[earlier] @ procrustes(units[earlier][here], turned[onto][there])", "units[earlier]", named("time")),
    Mistake("a known shift goes either way", "components/spaces/history.py",
            'with_time > 0 if direction == "towards" else with_time < 0', "with_time != 0", named("time")),
    Mistake("deals that are no deals", "components/spaces/group.py", "apart(documents, draw.permutation(first)", "apart(documents, first",
            named("time")),
    Mistake("a word in the units of its own deviation", "components/spaces/group.py", "- deals.mean(axis=0)) / deviation",
            "- deals.mean(axis=0)) / deals.std(axis=0)", named("time")),
    Mistake("a pair that translates one way", "components/spaces/dictionaries/parallel.py",
            "if behind.get(best) == word", "if True", named("spaces")),
    Mistake("no expectation, counts alone", "components/spaces/dictionaries/parallel.py",
            "share /= np.bincount(explained, share)[explained]", "pass", named("spaces")),
    Mistake("a sum of occurrences in place of a mean", "components/spaces/contextual.py",
            "sums[read] / seen[read, None]", "sums[read]", named("contexts")),
    Mistake("every answer finds back", "components/spaces/align.py", "(back == rows).numpy()", "(back == back).numpy()", named("spaces")),
]  # fmt: skip
