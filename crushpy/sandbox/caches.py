"""What known tools keep from run to run and must write: package caches, nothing that runs at login."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_CACHES = {
    "pip": (".cache/pip",),
    "uv": (".cache/uv",),
    "poetry": (".cache/pypoetry",),
    "pre-commit": (".cache/pre-commit",),
    "npm": (".npm", ".cache/node", ".cache/node-gyp"),
    "yarn": (".cache/yarn", ".yarn/berry/cache"),
    "pnpm": (".local/share/pnpm/store", ".cache/pnpm"),
    "bun": (".bun/install/cache",),
    "deno": (".cache/deno",),
    "cargo": (".cargo/registry", ".cargo/git"),
    "go": ("go/pkg/mod", "go/pkg/sumdb", ".cache/go-build", ".cache/golangci-lint"),
    "gradle": (".gradle/caches", ".gradle/daemon", ".gradle/native"),
    "mvn": (".m2/repository",),
    "ccache": (".cache/ccache", ".ccache"),
    "bazel": (".cache/bazel",),
    "gem": (".cache/gem",),
    "composer": (".cache/composer",),
    "dotnet": (".nuget/packages",),
    "zig": (".cache/zig",),
    "python3": (".cache/mypy", ".cache/ruff", ".cache/pylint", ".cache/black"),
}


def package_caches(home: Path) -> Iterator[Path]:
    """Those that are there, and the first one of each tool that is installed: it would make it itself."""
    for program, places in _CACHES.items():
        usual = home / places[0]
        if not usual.exists() and program != "python3" and shutil.which(program):
            with suppress(OSError):
                usual.mkdir(parents=True)
        for place in places:
            if (home / place).is_dir():
                yield home / place
