"""What a command needs beyond the sandbox: found by reading it, and compared with what is granted."""
