"""Studies: variants of one pre-training, trained over several seeds, fine-tuned and held against each other (`sesame study NAME`).

`variant` pre-trains one seed, `transfer` fine-tunes it, `folders` says where; `tables` gathers what they wrote, `effects` are
differences with their intervals, `plots` and `page.html.j2` show them, `__main__` is the study's stage; `published.yaml` has the
papers' figures. The stages stand in `studies/dvc.yaml`, so that `dvc repro` alone doesn't run hours of them.

One more variant is a line of its study's file in `studies/params`; one more study is one more file. No code.
"""
