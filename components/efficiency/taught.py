"""`python -m components.efficiency.taught POINT-TASK`: tune a point that learns from another one -> data/efficiency/<point>/<task>/."""

from components import stage
from components.efficiency.point import metrics_file, point

if __name__ == "__main__":
    stage.main("taught", point, metrics_file=metrics_file)
