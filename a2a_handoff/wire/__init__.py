"""What travels: A2A in every generation, the native JSON, and our extension's data in both."""
