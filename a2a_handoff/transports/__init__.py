"""The surfaces: how requests come in and answers go out. They hold no logic of handoffs."""
