"""Which hosts package managers talk to, by the words that make them do so."""

_PYPI = ("pypi.org", "files.pythonhosted.org")
_NPM = ("registry.npmjs.org",)
_CRATES = ("index.crates.io", "static.crates.io", "crates.io")
_GO = ("proxy.golang.org", "sum.golang.org")
_GEMS = ("rubygems.org", "index.rubygems.org")
_PACKAGIST = ("repo.packagist.org", "packagist.org", "api.github.com", "codeload.github.com")
_NUGET = ("api.nuget.org",)
_ANY: tuple[str, ...] = ()

_BY_PROGRAM: dict[str, tuple[tuple[str, ...], str]] = {
    "pip": (_PYPI, "install download wheel index"),
    "uv": (_PYPI, "add sync lock tool python install compile upgrade build publish"),
    "poetry": (_PYPI, "add install update lock publish"),
    "pdm": (_PYPI, "add install update lock sync publish"),
    "pipenv": (_PYPI, "install update sync lock"),
    "pipx": (_PYPI, "install run upgrade upgrade-all inject"),
    "twine": (("upload.pypi.org",), "upload"),
    "npm": (_NPM, "install i ci add update up upgrade audit view outdated publish create init search pack"),
    "pnpm": (_NPM, "install i add update up audit outdated publish create dlx"),
    "yarn": (("registry.yarnpkg.com", *_NPM), "install add upgrade up audit outdated publish create dlx"),
    "bun": (_NPM, "install i add update outdated publish create"),
    "cargo": (_CRATES, "add install update fetch search publish"),
    "gem": (_GEMS, "install update fetch push search"),
    "bundle": (_GEMS, "install update add outdated"),
    "composer": (_PACKAGIST, "install require update create-project outdated"),
    "dotnet": (_NUGET, "restore add"),
    "brew": (_ANY, "install upgrade update fetch tap"),
    "conda": (_ANY, "install create update search"),
    "mamba": (_ANY, "install create update search"),
    **dict.fromkeys(("apt", "apt-get"), (_ANY, "install update upgrade full-upgrade dist-upgrade source")),
    **dict.fromkeys(("dnf", "yum", "zypper"), (_ANY, "install update upgrade refresh")),
    "apk": (_ANY, "add update upgrade fetch"),
    "terraform": (_ANY, "init plan apply destroy get login"),
    "helm": (_ANY, "install upgrade repo pull push"),
    "playwright": (_ANY, "install"),
}
_GO_USES = (("get",), ("install",), ("mod", "download"), ("mod", "tidy"))


def package_hosts(program: str, operands: tuple[str, ...]) -> tuple[str, ...] | None:
    """The hosts a package manager would talk to, empty for any; None where it talks to none."""
    if program == "go":
        talks = any(operands[: len(use)] == use for use in _GO_USES)
        return _GO if talks and any("@" in word or word in ("get", "mod") for word in operands) else None
    if program == "yarn" and not operands:
        return _BY_PROGRAM["yarn"][0]
    known = _BY_PROGRAM.get(program)
    if known is None:
        return None
    hosts, words = known
    return hosts if set(operands[:2]) & set(words.split()) else None
