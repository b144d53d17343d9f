# The driver of a context of a Jupyter kernel: starts the kernel, has it run by Jupyter's messaging
# protocol what it is sent on descriptor 3, and says there what came of it. It runs as the tenant,
# beside the tenant's code, and is trusted with nothing.
import sys
path = list(sys.path)
sys.path[:] = [path for path in sys.path if path]
import json, os, re, secrets, select, signal, subprocess, tempfile, time

RUN, BEGIN = 1, 3
READY, DISPLAY, ERROR, DONE, SYNC, UNABLE = 1, 2, 3, 4, 5, 6


def say(kind, payload=b'', wait=False):
    write_whole(CONTROL, len(payload).to_bytes(4, 'big') + bytes([kind]) + payload)
    if wait:
        read_frame()


def unable(text):
    say(UNABLE, text.encode('utf-8', 'replace')[:2000])
    os._exit(1)


class Signals:
    """Pass interrupts to the kernel between two messages; wake up when a child process ends."""

    def __init__(self):
        self.interrupts = 0
        self.wake, theirs = os.pipe()
        for fd in (self.wake, theirs):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, self.pressed)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def pressed(self, *_):
        self.interrupts += 1

    def taken(self):
        """They were heard of."""
        try:
            os.read(self.wake, 4096)
        except BlockingIOError:
            pass


def forget():
    """In a copy of this process: signals are as in a new one."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
