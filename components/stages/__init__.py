"""Running of stages: the dependencies of each (`resolve`), the frame around its work (`stage`), and its start on
several processes (`launch`)."""
