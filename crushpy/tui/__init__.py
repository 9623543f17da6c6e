"""The terminal app (Textual). It shows the engine's events and calls the engine."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crushpy.core.messages import Image
    from crushpy.core.start_options import StartOptions
    from crushpy.tui.terminal.early_terminal import EarlyTerminal


def run_app(options: "StartOptions", terminal: "EarlyTerminal", images: "tuple[Image, ...]" = ()) -> int:
    """Runs the app and returns its exit code. `images` are attached to the first prompt."""
    import gc

    gc.disable()  # collecting while modules load costs more than it frees; the app enables it again
    from crushpy.tui.app import CrushpyApp
    from crushpy.tui.notify import restore_title

    app = CrushpyApp(options, terminal, images)
    app.run()
    restore_title()
    terminal.close()
    if app.farewell:
        print(app.farewell)
    if app.ended_by:
        import signal

        return 143 if app.ended_by == signal.SIGTERM else 130
    return app.return_code or 0
