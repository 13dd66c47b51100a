"""One HTML page and CSV tables out of what the stages measured (`python -m components.report`).

`tables` gathers the figures, `plots` draws them, `page.html.j2` lays them out, `__main__` is the stage. Only what
`params.yaml` declares is shown. One more section: a function in `tables`, a block in the page.
"""

STARTS = {"random": "random weights", "token_vectors": "own token vectors alone"}
"""What `finetune` holds a model's own weights against, as tables and pictures call it."""
