"""Deflates wheels anew, as small as deflate allows: python predict/python/tools/deflate_wheel.py FILE...

Needs zopfli (pip install zopfli). Every reader of ZIP reads what comes out; names, times and contents stay as they are, and so does
RECORD, whose hashes are of contents.
"""

from __future__ import annotations

import os
import struct
import sys
import zipfile
import zlib
from typing import List

# More try longer for some hundred bytes.
ITERATIONS = 15
# A zlib stream is a deflate stream between a head of two bytes and a checksum of four.
HEAD, CHECKSUM = 2, 4


def deflated(content: bytes) -> bytes:
    import zopfli.zlib

    stream: bytes = zopfli.zlib.compress(content, numiterations=ITERATIONS)
    return stream[HEAD:-CHECKSUM]


def entry(info: zipfile.ZipInfo, content: bytes, offset: int) -> tuple[bytes, bytes]:
    """An entry where it lies at an offset, and what the directory says of it."""
    best = deflated(content)
    assert zlib.decompress(best, -zlib.MAX_WBITS) == content
    method, data = (zipfile.ZIP_DEFLATED, best) if len(best) < len(content) else (zipfile.ZIP_STORED, content)
    year, month, day, hour, minute, second = info.date_time
    day_and_time = (hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day)
    name = info.filename.encode()
    # Version 2.0 reads it; names are UTF-8.
    said = struct.pack("<HHHHHLLLHH", 20, 0x800, method, *day_and_time, zlib.crc32(content), len(data), len(content), len(name), 0)
    made_by = struct.pack("<BB", 20, info.create_system)
    place = struct.pack("<HHHLL", 0, 0, 0, info.external_attr, offset)
    return b"PK\x03\x04" + said + name + data, b"PK\x01\x02" + made_by + said + place + name


def whole(entries: List[tuple[zipfile.ZipInfo, bytes]]) -> bytes:
    body, directory = b"", b""
    for info, content in entries:
        local, central = entry(info, content, len(body))
        body, directory = body + local, directory + central
    end = struct.pack("<HHHHLLH", 0, 0, len(entries), len(entries), len(directory), len(body), 0)
    return body + directory + b"PK\x05\x06" + end


def main() -> None:
    if len(sys.argv) < 2 or any(word.startswith("-") for word in sys.argv[1:]):
        sys.exit((__doc__ or "").splitlines()[0])
    for path in sys.argv[1:]:
        with zipfile.ZipFile(path) as wheel:
            entries = [(info, wheel.read(info)) for info in wheel.infolist()]
        made = whole(entries)
        with open(path + ".new", "wb") as file:
            file.write(made)
        with zipfile.ZipFile(path + ".new") as wheel:
            if wheel.testzip() or [(info.filename, wheel.read(info)) for info in wheel.infolist()] != [
                (info.filename, content) for info, content in entries
            ]:
                sys.exit(f"{path}: what was written is not what was read")
        before = os.path.getsize(path)
        os.replace(path + ".new", path)
        print(f"{path}: {before:,} -> {len(made):,} bytes")


if __name__ == "__main__":
    main()
