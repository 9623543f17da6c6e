"""A real app, run on a terminal by test_transcript_paint.py: streams, is covered by a notice, streams on."""

import asyncio
import sys
from pathlib import Path

from transcript_host import EVERYTHING, Host

from crushpy.tui.items import ReplyItem

TEXT = "\n".join(f"Line {n} of **the reply** with `code`.\n\n- item {n}\n" for n in range(40))


class Painted(Host):
    async def on_ready(self) -> None:
        self.run_worker(self.play())

    async def play(self) -> None:
        key = self.view.add(ReplyItem("", done=False))
        for number, start in enumerate(range(0, len(TEXT), 20)):
            self.view.stream(key, TEXT[start : start + 20])
            await asyncio.sleep(0.004)
            if number == 30:
                self.notify("in the way\n" * 8, timeout=60)
            if number == 60:
                self.bell()
                self.clear_notifications()
        self.view.finish(key)
        while self.view.busy or self.query("Toast"):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        self.exit()


app = Painted(EVERYTHING)
app.run()
Path(sys.argv[1]).write_text(str(app.view.direct_frames))
