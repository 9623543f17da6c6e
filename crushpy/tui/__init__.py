"""What a person sees (Textual). It learns everything from events and asks everything through the engine."""

from crushpy.core.messages import Image
from crushpy.core.start_options import StartOptions


def run_app(options: StartOptions, images: tuple[Image, ...] = ()) -> int:
    """Runs the app until the user leaves; the exit code. `images` go with the first prompt."""
    import gc

    from crushpy.tui.terminal.raw_mode import EarlyKeys, ask_background, raw_terminal, read_typed_keys

    with raw_terminal() as typed:
        ask_background()
        gc.disable()  # collecting while modules load costs more than it frees; the app turns it on again
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
