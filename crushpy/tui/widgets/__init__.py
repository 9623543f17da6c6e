"""What the chat screen is made of."""
