"""vim's keys for the prompt: `motions.py` says where they lead, `machine.py` what they do."""
