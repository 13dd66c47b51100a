"""`python -m components.studies.variant_at_rate STUDY-VARIANT-SEED`: pre-train a variant with one seed, at its chosen learning rate
-> data/variants/<study>/<variant>/<seed>/."""

from components.stages import stage
from components.studies.variant import metrics_file, previous_run, train

if __name__ == "__main__":
    stage.main("variant_at_rate", train, resumes=previous_run, metrics_file=metrics_file)
