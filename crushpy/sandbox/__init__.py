"""What holds the agent's commands: which sandbox works here, what it lets through, who runs them in it."""
