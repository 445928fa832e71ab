"""MCP tools: the inbox and the handoffs of an agent, for editors and assistants.

``tools`` is the table of the tools and what each one does, ``watching`` the one that waits, ``calls`` the
way to the broker that they share, ``shown`` how its answers look. ``server`` makes an MCP server of them; it
alone imports the package ``mcp``, which is an extra. ``surface`` serves that at ``/mcp``, each request by an
``exchange``; the command ``mcp`` serves the same on standard input and output.
"""
