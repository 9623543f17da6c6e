"""The program that starts and ends the agent's commands, inside a sandbox or beside crushpy.

It is a process of its own. It imports little, and only the standard library, since commands wait for it.
"""
