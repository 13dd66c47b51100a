"""An HTML page and CSV tables of the stages' results (`python -m components.report`).

`tables` collects the figures, `page.html.j2` is the page, `__main__` the stage. Only what `params.yaml` declares is shown.
To add a section, write a function in `tables`, call it in `__main__._page`, and add a block to the page.
"""

STARTS = {"random": "random weights", "token_vectors": "own token vectors alone"}
"""The starts that `finetune` compares with pre-trained weights, as tables and plots name them."""
