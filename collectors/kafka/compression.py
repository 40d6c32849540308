"""Decompress the records of a batch. Coordinators do not compress; mirrors, restores and settings may.

pyarrow takes 24 MB of a process: it is imported with the first compressed batch.
"""

#: The codecs of a batch's attributes (`CompressionType`), by Arrow's names.
_STREAMS = {1: "gzip", 3: "lz4", 4: "zstd"}
_SNAPPY = 2
#: snappy-java's framing of blocks: its magic and two versions, then a length before each block.
_MARK, _HEADER = b"\x82SNAPPY\x00", 16


def decompress(codec: int, data: bytes) -> bytes:
    """Return the records of a batch. Raises ValueError."""
    import pyarrow as pa

    try:
        if codec == _SNAPPY:
            snappy = pa.Codec("snappy")
            blocks = _snappy_blocks(data)
            return b"".join(bytes(snappy.decompress(block, _unpacked_size(block))) for block in blocks)
        if codec in _STREAMS:
            with pa.CompressedInputStream(pa.BufferReader(data), _STREAMS[codec]) as stream:
                return bytes(stream.read())
    except (OSError, IndexError) as error:
        raise ValueError(str(error)) from error
    raise ValueError(f"codec {codec} is not known")


def _snappy_blocks(data: bytes) -> list[bytes]:
    if not data.startswith(_MARK):
        return [data]
    blocks, at = [], _HEADER
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        blocks.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return blocks


def _unpacked_size(block: bytes) -> int:
    """Return the varint with which a block of snappy begins: the length of its content in bytes."""
    size = shift = at = 0
    while True:
        size |= (block[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if block[at - 1] < 0x80:
            return size
