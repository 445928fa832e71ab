"""A broker that hands tasks from one A2A agent to another, without losing any."""

__version__ = "0.1.0"
