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
                self.notify("in the way\n" * 8, timeout=600)
                while not self.query("Toast"):
                    await asyncio.sleep(0.01)
                await self.painted()
            if number == 60:
                self.bell()
                self.clear_notifications()
        self.view.finish(key)
        while self.view.busy or self.query("Toast"):
            await asyncio.sleep(0.01)
        await self.painted()
        self.exit()

    async def painted(self) -> None:
        """Returns once all that is known now is on the terminal."""
        for _ in range(2):
            done = asyncio.Event()
            self.call_after_refresh(done.set)
            await done.wait()


app = Painted(EVERYTHING)
app.run()
Path(sys.argv[1]).write_text(str(app.view.direct_frames))
