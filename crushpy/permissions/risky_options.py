"""Options known to write or execute, by program, and how they are found among the words of a command."""

import re
from collections.abc import Iterator, Sequence

from crushpy.core.messages import Data
from crushpy.permissions.shell.ast import Word

Risks = dict[int, str]
"""Why a word is risky, as the end of a sentence, by the index of the word."""


class Risk(Data, frozen=True):
    """Which options of one program write or execute."""

    short: str = ""
    """Letters of risky options."""
    long: str = ""
    """Risky long options without dashes, separated by spaces; abbreviations count."""
    values: str = ""
    """Letters of harmless options that take an attached value."""
    operands: bool = False
    """True if every operand is written to."""
    option_files: bool = False
    """True if it reads options from a file given as `@name`."""


_TABLE = """
sort: o | output compress-program | kStT
rg: - | pre hostname-bin | ABCMTefgjmrtdE
ag: - | pager
ack: - | pager output create-ackrc ackrc
fd: xX | exec exec-batch | eEtdSocj
tree: o | output | LPIT
yq: is | inplace split-exp split-exp-file
file: C | compile
date: s | set | dfrIR
tee: - +operands
tar: xcruAIFTg | extract get create append update catenate concatenate delete to-command checkpoint-action
    use-compress-program info-script new-volume-script rsh-command rmt-command remove-files index-file
    volno-file files-from listed-incremental | fCbXKLNV
curl: oOTdFKXcDQE | output output-dir remote-name remote-name-all remote-header-name upload-file data
    data-ascii data-binary data-raw data-urlencode form form-string json config request cookie-jar
    dump-header trace trace-ascii stderr libcurl etag-save hsts alt-svc quote create-dirs engine unix-socket
    abstract-unix-socket url-query variable | AHbemruxyYCPUhtz
wget: OPioaeU | execute config use-askpass +operands
scp: oFJS | - | ciPlX
sftp: oFJSDb
rsync: eM | rsh rsync-path remote-option delete remove-source-files log-file write-batch files-from
make: fCEI | file makefile directory eval include-dir environment-overrides | jlOoW
less: oOk | log-file LOG-FILE lesskey-file lesskey-src lesskey-content
man: PHC | pager html config-file | sSMmeLErR
zip: TmOd | unzip-command move out
unzip: - +operands
gzip: - +operands
gunzip: - +operands
pytest: ocp | basetemp junitxml junit-xml log-file result-log report-log rootdir debug override-ini pastebin
    confcutdir config-file inifile cov-config cov-report pdbcls tx px rsyncdir html csv alluredir
    json-report-file store-durations durations-path profile-svg | kmnrW +option_files
ruff: o | output-file fix unsafe-fixes config add-noqa cache-dir +option_files
eslint: ocf | output-file fix rulesdir resolve-plugins-relative-to config plugin parser format cache-file
    cache-location
mypy: p | python-executable install-types config-file cache-dir junit-xml html-report txt-report xml-report
    cobertura-xml-report any-exprs-report linecount-report linecoverage-report lineprecision-report
    xslt-html-report xslt-txt-report memory-xml-report shadow-file custom-typeshed-dir +option_files
pyright: pv | project pythonpath venvpath typeshedpath createstub writebaseline baselinefile
tsc: p | project outdir outfile declarationdir tsbuildinfofile generatetrace generatecpuprofile build
    rootdir +option_files
jest: cu | config rootdir outputfile setupfiles setupfilesafterenv globalsetup globalteardown transform
    runner testrunner reporters resolver cachedirectory coveragedirectory testenvironment preset modulepaths
    snapshotserializers testresultsprocessor updatesnapshot filter roots projects | tiw
vitest: cru | config root outputfile reporter environment dir coverage update pool ui | tw
cargo: ZC | config target-dir manifest-path out-dir artifact-dir lockfile-path index registry root path git
    | pjF
npm: C | script-shell prefix userconfig globalconfig logs-dir cache node-options shell init-module git
    local-prefix globaldir tmp | w
pnpm: C | dir prefix script-shell store-dir virtual-store-dir modules-dir lockfile-dir global-dir cache-dir
    state-dir node-options config-dir pnpmfile global-pnpmfile shell-emulator | rFw
yarn: - | cwd prefix global-folder modules-folder cache-folder link-folder preferred-cache-folder
    script-shell use-yarnrc
gradle: pbcIgDPF | project-dir build-file settings-file init-script gradle-user-home project-cache-dir
    include-build system-prop project-prop write-locks write-verification-metadata profile scan | x
mvn: fsgtlDPb | file settings global-settings toolchains log-file define builder
dotnet: or | output results-directory settings diag artifacts-path collect test-adapter-path logger
pip: t | log cache-dir target prefix root src report python proxy cert index-url extra-index-url
tox: cx | conf workdir root result-json override installpkg | epn
nox: f | noxfile envdir report | esktR
rspec: roI | require out options default-path | fetP
phpunit: cd | configuration bootstrap include-path log-junit log-teamcity coverage-html coverage-text
go: - | exec toolexec vettool overlay modfile o C c coverprofile cpuprofile memprofile blockprofile
    mutexprofile trace outputdir gcflags ldflags asmflags gccgoflags pkgdir
gcc: oB | wrapper specs fplugin save-temps dumpdir dumpbase |
    acdefghijklmnpqrstuvwxyzACDEFGHIJKLMNOPQRSTUVWXYZ +option_files
psql: cfoL | command file output log-file
sqlite3: - | cmd init
printf: v
hostname: F | file +operands
test: v
[: v
"""
"""For each program the fields of `Risk`, separated by `|`; `-` is empty. The options of gcc are not clusters
of letters, so each is one with a value."""


def _read_table(table: str) -> Iterator[tuple[str, Risk]]:
    for entry in re.split(r"\n(?! )", table.strip()):
        program, _, cells = " ".join(entry.split()).partition(": ")
        options, *flags = cells.split(" +")
        names = ("" if cell.strip() == "-" else cell.strip() for cell in options.split("|"))
        yield program, Risk(*names, operands="operands" in flags, option_files="option_files" in flags)


PROGRAMS = dict(_read_table(_TABLE))


def option_risks(words: Sequence[Word], risk: Risk, program: str = "") -> Risks:
    """Risky words of a program, or of a subcommand whose full name is `program`, with ordinary options."""
    risks: Risks = {}
    program = program or words[0].text
    has_options = bool(risk.short or risk.long)
    options_over = False
    for index, word in enumerate(words[1:], 1):
        if word.kind != "literal":
            if has_options and not options_over and word.may_be_option:
                risks[index] = "it could turn out to be an option that writes or executes"
            elif risk.operands:
                risks[index] = f"{program} writes to it"
        elif word.text == "--" and not words[index - 1].is_option:
            options_over = True  # after an option, `--` could be that option's value
        elif risk.option_files and word.text.startswith("@"):
            risks[index] = f"{program} takes options from that file"
        elif not word.is_option or options_over:
            if risk.operands and word.text not in ("-", "/dev/null", "/dev/stdout", "/dev/stderr"):
                risks[index] = f"{program} writes to it"
        elif (attached := _risky_option(word.text, risk)) is not None:
            risks[index] = f"with it {program} can write or execute"
            if not attached and index + 1 < len(words):
                risks[index + 1] = f"it is what {word.text} stands for"
    return risks


def _risky_option(text: str, risk: Risk) -> str | None:
    """None for a harmless option, otherwise the value attached to a risky one."""
    if text.startswith("--"):
        name, _, value = text[2:].partition("=")
        return value if is_long(name, risk.long.split()) else None
    # Some programs take long options with one dash (go test -exec).
    name, _, value = text[1:].partition("=")
    if name in risk.long.split():
        return value
    for index, letter in enumerate(text[1:], 2):
        if letter in risk.short:
            return text[index:]
        if letter in risk.values:
            return None
    return None


def is_long(name: str, options: Sequence[str]) -> bool:
    """True if `name` is one of the long options or an abbreviation of one."""
    return bool(name) and any(option.startswith((name, name.lower())) for option in options)
