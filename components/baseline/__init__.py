"""The baseline that keeps models honest: bag of words on the same examples (`python -m components.baseline TASK`)."""
