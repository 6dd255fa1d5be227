"""The invariants: each file declares ORDER, SUMMARY and run(subject) -> Outcome; its name is the name of the check."""
