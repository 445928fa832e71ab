"""Real processes that are killed and stopped at random, under load: ``python -m tests.chaos --help``.

``agents`` are the programs that do the work and write down that they did it, ``storm`` decides who is hit when,
``campaign`` runs all of it, and ``judging`` holds what callers were told against what agents did and what the log
says.
"""
