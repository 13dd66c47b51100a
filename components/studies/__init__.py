"""Studies: variants of one pre-training, trained over several seeds, fine-tuned and compared (`sesame study NAME`).

`variant` pre-trains one seed, `transfer` fine-tunes it, `folders` has the paths; `tables` collects their results,
`effects` are differences with their intervals, `plots` and `page.html.j2` show them, `__main__` is the study's stage;
`published.yaml` has the papers' figures. The stages are in `studies/dvc.yaml`, so that `dvc repro` alone doesn't run
hours of them.

One more variant is a line of its study's file in `studies/params`; one more study is one more file. No code.
"""
