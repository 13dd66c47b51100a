"""Studies: variants of one pre-training, trained over several seeds, fine-tuned and compared (`sesame study NAME`).

`variant` pre-trains one seed, `transfer` fine-tunes it, `folders` has the paths; `tables` collects the results, `readings`
describes them, `plots` and `page.html.j2` show them, `__main__` is the study's stage; `published.yaml` has the papers'
figures. The stages are in `studies/dvc.yaml`, so that a plain `dvc repro` does not run hours of them.

To add a variant, add a line to its study's file in `studies/params`; to add a study, add a file. No code.
"""
