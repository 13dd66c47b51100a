"""`python -m components.labs.efficiency.taught POINT-TASK`: fine-tune a point with a teacher ->
data/efficiency/<point>/<task>/."""

from components.labs.efficiency.point import metrics_file, point
from components.stages import stage

if __name__ == "__main__":
    stage.main("taught", point, metrics_file=metrics_file)
