"""The terminal app (Textual). It shows the engine's events and calls the engine."""

from crushpy.core.messages import Image
from crushpy.core.start_options import StartOptions


def run_app(options: StartOptions, images: tuple[Image, ...] = ()) -> int:
    """Runs the app and returns its exit code. `images` are attached to the first prompt."""
    import gc

    from crushpy.tui.terminal.raw_mode import EarlyKeys, ask_background, raw_terminal, read_typed_keys
    from crushpy.util.processes import exit_on_signals

    with exit_on_signals(), raw_terminal() as typed:
        ask_background()
        gc.disable()  # collecting while modules load costs more than it frees; the app enables it again
        from crushpy.tui.app import CrushpyApp
        from crushpy.tui.notify import restore_title

        app = CrushpyApp(options, EarlyKeys(typed + read_typed_keys()), images)
        app.run()
        restore_title()
    if app.farewell:
        print(app.farewell)
    if app.ended_by:
        import signal

        return 143 if app.ended_by == signal.SIGTERM else 130
    return app.return_code or 0
