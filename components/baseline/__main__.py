"""`python -m components.baseline TASK`: bag of words on the same examples, data/metrics/baseline/<task>.json.

TF-IDF of each text; for a pair [u, v, |u - v|, u * v]. Logistic regression, or ridge regression for scores. No random
numbers take part, so there is one run and no spread.
"""

from pathlib import Path

from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from components import params, stage, tasks
from components.tasks import Example, metrics
from components.tracking import Run


def bag_of_words(rows: dict[str, list[Example]], pair: bool) -> dict[str, sparse.csr_matrix]:
    """Features of each split, (examples, words), words and weights from the training split only."""
    vectorizer = TfidfVectorizer(lowercase=True, token_pattern=r"(?u)\b\w+\b", sublinear_tf=True)
    vectorizer.fit(text for row in rows["train"] for text in (row.text_a, row.text_b) if text)
    features = {}
    for split, examples in rows.items():
        u = vectorizer.transform(row.text_a for row in examples)
        if pair:
            v = vectorizer.transform(row.text_b for row in examples)
            u = sparse.hstack([u, v, abs(u - v), u.multiply(v)]).tocsr()
        features[split] = u
    return features


def baseline(all_params: params.Params, name: str, run: Run) -> dict:
    config, task, folder = all_params.finetune, all_params.tasks[name], Path("data/tasks", name)
    rows = {"train": tasks.subset(tasks.read(folder, "train"), config.train_examples, all_params.seed)}
    rows |= {split: tasks.subset(tasks.read(folder, split), config.eval_examples, all_params.seed) for split in ("dev", "test")}
    features = bag_of_words(rows, pair=task.table.text_b is not None)
    model = Ridge(alpha=1.0) if task.kind == "regression" else LogisticRegression(max_iter=1000)
    model.fit(features["train"], [row.label for row in rows["train"]])
    scores = {split: metrics.evaluate(task, model.predict(features[split]).tolist(), [row.label for row in rows[split]]) for split in ("dev", "test")}
    run.tag(model="bag-of-words", task=name)
    print(task.metric, *(f"{split} {metrics.shown(score[task.metric])}" for split, score in scores.items()))
    return {
        "model": "bag-of-words", "task": name, "method": "ridge regression" if task.kind == "regression" else "logistic regression",
        "metric": task.metric, "protocol": metrics.protocol("one fit", len(rows["train"]), len(rows["test"])),
        "trainable_parameters": int(model.coef_.size + getattr(model.intercept_, "size", 1)),
        "baseline": {split: metrics.summary([score]) for split, score in scores.items()},
    }  # fmt: skip


if __name__ == "__main__":
    stage.main("baseline", baseline, "tasks")
