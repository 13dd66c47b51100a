"""`python -m components.studies.further STUDY-VARIANT-SEED`: continue the pre-training of another variant
-> data/variants/<study>/<variant>/<seed>/."""

from components.stages import stage
from components.studies.variant import metrics_file, previous_run, train

if __name__ == "__main__":
    stage.main("further", train, resumes=previous_run, metrics_file=metrics_file)
