"""The messages between a client and its console, as they are sent and read (SPEC 7.5)."""

import pytest

from clawpy_console.attach.protocol import (
    MAX_MESSAGE_BYTES,
    MESSAGE_HEAD,
    OUTPUT,
    RESTORE_TERMINAL,
    MessageParser,
    encode_message,
)


def test_messages_may_come_in_pieces_and_have_a_largest_size():
    parser, messages = MessageParser(), []
    for byte in encode_message(OUTPUT, b"one") + encode_message(RESTORE_TERMINAL) + encode_message(OUTPUT, b"two"):
        messages += parser.feed(bytes([byte]))
    assert messages == [(OUTPUT, b"one"), (RESTORE_TERMINAL, b""), (OUTPUT, b"two")]
    with pytest.raises(ValueError, match="a message of"):
        parser.feed(MESSAGE_HEAD.pack(OUTPUT, MAX_MESSAGE_BYTES + 1))
