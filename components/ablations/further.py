"""`python -m components.ablations.further STUDY-VARIANT-SEED`: train on what another variant has made
-> data/variants/<study>/<variant>/<seed>/."""

from components import stage
from components.ablations.variant import metrics_file, previous_run, train

if __name__ == "__main__":
    stage.main("further", train, resumes=previous_run, metrics_file=metrics_file)
