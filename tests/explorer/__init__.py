"""A small world taken through every order of events (docs/simulator.md, "Every order of events")."""
