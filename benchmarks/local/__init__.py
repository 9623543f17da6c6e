"""Small tasks for a real model on this machine."""
