"""How an item becomes rows of styled text. Start reading at `draw_item.py`."""
