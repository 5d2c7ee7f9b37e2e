# SPDX-License-Identifier: Apache-2.0
"""What the command shows on a terminal: terminal_test.py ATTNJIT.

prewarm has a bar, the spec at hand and a table there, in colours unless NO_COLOR is set; its
standard output is the same as elsewhere.
"""
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios

attnjit = sys.argv[1]


def on_terminal(*words, **environment):
    """Standard output, and what the terminal that is standard error is sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 200, 0, 0))
    with subprocess.Popen([attnjit, *words], stdout=subprocess.PIPE, stderr=theirs,
                          env={**os.environ, "TERM": "xterm", **environment}) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
        printed = process.stdout.read()
    os.close(ours)
    return printed.decode(), shown.decode()


with tempfile.TemporaryDirectory() as folder:
    # What no kernel serves is soon done, and needs no NVRTC.
    manifest = os.path.join(folder, "model.json")
    with open(manifest, "w", encoding="utf-8") as file:
        json.dump({"name": "toy", "source": "s",
                   "specs": [{"num_q_heads": 8, "qk_depth": 1000, "mask": "causal"}] * 2}, file)
    os.environ["ATTNJIT_CACHE_DIR"] = os.path.join(folder, "cache")
    words = ("prewarm", manifest, "--arch", "sm_90a,sm_100a")
    printed, shown = on_terminal(*words, NO_COLOR="")
    assert "[...................." in shown and "of 4" in shown, shown
    assert "toy[0] sm_90a num_q_heads 8, qk_depth 1000, mask causal" in shown, shown
    table = shown[shown.index("compiled"):].splitlines()
    assert table[1].split() == ["sm_100a", "0", "0", "0", "2"], table
    assert table[2].split() == ["sm_90a", "0", "0", "0", "2"], table
    assert table[3].startswith("4 specs in "), table
    assert "\033[31mattnjit prewarm\033[0m: " in shown, shown
    assert "\033" not in printed, printed  # which is a pipe

    _, plain = on_terminal(*words, NO_COLOR="1")
    assert "\033[3" not in plain and "attnjit prewarm: " in plain, plain
    _, dumb = on_terminal(*words, TERM="dumb")
    assert "\033[3" not in dumb, dumb
    piped = subprocess.run([attnjit, *words], capture_output=True, text=True)
    assert piped.stdout == printed, (piped.stdout, printed)
    assert "[..." not in piped.stderr and "specs in" not in piped.stderr, piped.stderr
print("a bar, a table, colours")
