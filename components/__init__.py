"""What the stages do. Imports neither Prefect nor DVC: each stage is `python -m components.<stage> [NAME]`."""
