"""A model in the forms of other runtimes, and the check of each against the plain path."""
