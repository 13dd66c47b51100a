"""transformers' own fine-tuning on our examples under our recipe, to hold our scores against. By hand, in a project's folder:

    python -m tests.benchmarks.trainer_scores CHECKPOINT_FOLDER MODEL TASK

MODEL names the recipe in `finetune.recipes`; examples, seeds and metrics are those of params.yaml. Classification only.
"""

import statistics
import sys
import tempfile
import time

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments

from components import params
from components.core import compute
from components.finetune import runs
from components.tasks import Example, metrics


def main(folder: str, model: str, task_name: str) -> None:
    all_params = params.load()
    config, task, recipe = all_params.finetune, all_params.tasks[task_name], all_params.finetune.recipes[model]
    shared = {"learning_rate", "epochs", "batch_size", "warmup", "weight_decay", "max_length"}
    plain = params.Recipe(method="full", **recipe.model_dump(include=shared))
    if recipe != plain or config.precision != "32-true" or task.kind != "classification":
        sys.exit("the Trainer is only set up for classification, method full with its default schedule and dropout, and precision 32-true")
    compute.prepare(config.threads)
    rows, tokens = runs.examples(all_params, task_name), AutoTokenizer.from_pretrained(folder)

    def encoded(examples: list[Example]) -> list[dict]:
        pairs = [example.text_b for example in examples] if examples[0].text_b is not None else None
        batch = tokens([example.text_a for example in examples], pairs, truncation=True, max_length=recipe.max_length)
        labels = [task.labels.index(example.label) for example in examples]
        return [{key: batch[key][i] for key in batch} | {"labels": labels[i]} for i in range(len(examples))]

    train, dev = encoded(rows["train"]), encoded(rows["dev"])
    scores = []
    for seed in config.seeds:
        torch.manual_seed(seed)
        network = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=len(task.labels), dtype=torch.float32)
        with tempfile.TemporaryDirectory() as out:
            arguments = TrainingArguments(
                out, per_device_train_batch_size=recipe.batch_size, num_train_epochs=recipe.epochs, learning_rate=recipe.learning_rate,
                warmup_steps=recipe.warmup, weight_decay=recipe.weight_decay, max_grad_norm=1.0, seed=seed, use_cpu=True, report_to=[],
                save_strategy="no", logging_strategy="no", disable_tqdm=True, per_device_eval_batch_size=128,
            )  # fmt: skip
            trainer = Trainer(network, arguments, train_dataset=train, data_collator=DataCollatorWithPadding(tokens))
            started = time.perf_counter()
            trainer.train()
            seconds = time.perf_counter() - started
            found = [task.labels[i] for i in trainer.predict(dev).predictions.argmax(1)]
        scores.append(metrics.evaluate(task, "dev", rows["dev"], found))
        shown = " ".join(f"{name} {metrics.shown(value)}" for name, value in scores[-1].items())
        print(f"seed {seed}: {shown} in {seconds:.0f} s", flush=True)
    for name in scores[0]:
        print(f"{task_name} {name}: mean {statistics.fmean(score[name] for score in scores):.4f} over {len(scores)} seeds")


if __name__ == "__main__":
    main(*sys.argv[1:])
