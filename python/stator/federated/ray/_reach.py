"""Whether a cluster is at an address. Ray itself waits for minutes until it says that none is.

A cluster's head speaks gRPC, which is HTTP/2: its first words are its settings. One question of
Ray's protocol is asked, without a token: who answers it wants none.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Iterator

#: How many seconds there are for each step.
_SECONDS = 5.0

_ADDRESS = re.compile(r"(?P<client>ray://)?(?P<host>\[[^\]]+\]|[^\[\]/:]+):(?P<port>[0-9]{1,5})")

#: Frames of HTTP/2 by their numbers, and flags.
_DATA, _HEADERS, _RESET, _SETTINGS, _GOES_AWAY = 0, 1, 3, 4, 7
_END_STREAM, _END_HEADERS = 1, 4

_QUESTION = "/ray.rpc.NodeInfoGcsService/CheckAlive"


def takes_no_token(address: str) -> bool | None:
    """Whether the cluster at an address serves who has no token; `None`: it can't be told, as with
    addresses that aren't a host's and a port's.

    Raises `ConnectionError` if there is no cluster.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return None
    host = found["host"].strip("[]")
    try:
        connection = socket.create_connection((host, int(found["port"])), timeout=_SECONDS)
    except (OSError, OverflowError) as error:
        raise _none_there(address, str(error) or type(error).__name__) from None
    with connection:
        if found["client"] or os.environ.get("RAY_USE_TLS") == "1":
            return None
        try:
            return _asked(connection, address)
        except OSError:
            raise _none_there(address, "what is there doesn't speak its language") from None


def _none_there(address: str, why: str) -> ConnectionError:
    return ConnectionError(
        f"no Ray cluster answers at this address: {why}\n"
        "  expected: that of a cluster's head node, as `ray start --head` prints it\n"
        f"  found:    {address}\n"
        "  hint:     without `address=` there is a cluster on this machine, while the context lives"
    )


def _asked(connection: socket.socket, address: str) -> bool | None:
    """The answer to the question. Raises `OSError` if what answers is no gRPC."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": _QUESTION,
        ":authority": address,
        "te": "trailers",
        "content-type": "application/grpc",
    }
    connection.sendall(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, 1, b"".join(_literal(*each) for each in headers.items()))
        # A message without fields.
        + _frame(_DATA, _END_STREAM, 1, bytes(5))
    )
    frames = _frames(connection)
    if next(frames)[0] != _SETTINGS:
        raise ConnectionError
    for kind, flags, stream in frames:
        if kind in (_RESET, _GOES_AWAY) or (
            stream == 1 and kind == _HEADERS and flags & _END_STREAM
        ):
            # It refuses, or is another version.
            return None
        if stream == 1 and kind == _DATA:
            return True
    return None


def _literal(name: str, value: str) -> bytes:
    """A header as it is: nothing shortened."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def _frames(connection: socket.socket) -> Iterator[tuple[int, int, int]]:
    """Kind, flags and stream of what comes. Raises `OSError` where it ends, or is no frame."""
    for _ in range(64):
        head = _read(connection, 9)
        size = int.from_bytes(head[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        if size > 1 << 16:
            raise ConnectionError
        _read(connection, size)
        yield kind, flags, stream


def _read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise ConnectionError
        found += more
    return found
