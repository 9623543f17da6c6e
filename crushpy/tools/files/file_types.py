"""Tells what kind of file some bytes are, by how they begin."""

from crushpy.util.images import image_type

_BINARIES = (
    (b"\x7fELF", "ELF program or library"),
    (b"MZ", "Windows program or library"),
    (b"\xcf\xfa\xed\xfe", "Mach-O program or library"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (b"%PDF-", "PDF"),
    (b"PK\x03\x04", "ZIP archive or a document made of one"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"7z\xbc\xaf\x27\x1c", "7z archive"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"\0asm", "WebAssembly"),
    (b"BM", "BMP image"),
    (b"II*\0", "TIFF image"),
    (b"MM\0*", "TIFF image"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
    (b"fLaC", "FLAC audio"),
    (b"wOFF", "web font"),
    (b"wOF2", "web font"),
)


def describe_binary(raw: bytes) -> str:
    """What a binary file is, in words."""
    for magic, words in _BINARIES:
        if raw.startswith(magic):
            return words
    if raw[4:8] == b"ftyp":
        return "MP4 or other ISO media"
    return image_type(raw) or "unknown type"
