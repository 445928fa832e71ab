"""The pure core: what a handoff is and how it moves on.

Nothing in here reads a clock, draws a random number, makes an id, opens a file or a socket.
Time, ids and jitter come in as values; effects leave as actions.
"""
