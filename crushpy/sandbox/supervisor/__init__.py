"""The program that starts the agent's commands and ends them, inside a sandbox or beside crushpy.

It is a process of its own, imports nothing but Python's library, and little of that: its start is waited for.
"""
