"""Evaluation of pre-trained models without fine-tuning.

To add a kind of evaluation, write a folder and add its name to `EVALUATIONS` of `components.params.evaluations`. In the folder:
`config.py` with its settings, an EvaluationBlock, as `Evaluation` (no torch), and `evaluation.py` with

- `prepare(folder, block)`: write the items to data/evaluations/NAME; returns figures, the number of items among them
  (`contract.ITEM_COUNTS`). With a setting `task` it is `prepare(folder, block, task, seed)`
- `evaluate(folder, model, tokens, name)`: evaluate one model; returns `contract.Answers`

The shortest example is `bits_per_byte`. `minimal_pairs.scoring` has the probability of a text, `files` readers of tables, `held_out` text
that the models have not read. An item that a model can't read, since it is too long, is NaN, and counted as left out. Of a measure
of which less is better the name is in `config.LOWER_IS_BETTER`; in bits or nats, the settings have `within_one_rule = True`.
"""
