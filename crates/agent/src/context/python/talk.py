# The driver of a Python context: runs what it is sent on descriptor 3, in one namespace, and says
# there what came of it. It runs as the tenant, beside the tenant's code, and is trusted with nothing.
import ast, builtins, os, signal, sys, threading, types

RUN = 1
READY, DISPLAY, ERROR, DONE, SYNC = 1, 2, 3, 4, 5
# A larger bundle is cut: its largest media types are left out, and the result says so.
BUNDLE_BYTES_MAX = 8 * 1024 * 1024
TEXT_BYTES_MAX = 1024 * 1024
FLUSH_S = 0.02
HERE = '<isolet>'
MAIN = threading.get_ident()


class Gate:
    """Holds interrupts back while the driver's own words are half said."""

    def __init__(self):
        self.lock = threading.RLock()
        self.depth = 0
        self.open = False
        self.due = False
        self.ours = os.getpid()

    def __enter__(self):
        # Only the main thread is ever interrupted.
        self.depth += threading.get_ident() == MAIN
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()
        if threading.get_ident() == MAIN:
            self.depth -= 1
            if self.due and not self.depth:
                self.due = False
                if self.open:
                    raise KeyboardInterrupt

    def interrupt(self, *_):
        if self.depth:
            self.due = self.open
        elif self.open or os.getpid() != self.ours:
            raise KeyboardInterrupt


gate = Gate()


def say(kind, payload=b'', wait=False):
    if os.getpid() != gate.ours:
        return
    with gate:
        write_whole(CONTROL, len(payload).to_bytes(4, 'big') + bytes([kind]) + payload)
        if wait:
            read_frame()


class Pipe:
    """The bytes under a stream: a descriptor that the agent reads."""

    closed = False
    mode = 'wb'

    def __init__(self, fd, stream):
        self.fd, self.stream = fd, stream

    def write(self, data):
        with gate:
            self.stream.flush()
            self.stream.turn()
            write_whole(self.fd, data)
        return len(data)

    def fileno(self):
        return self.fd

    def flush(self):
        self.stream.flush()

    def writable(self):
        return True

    def readable(self):
        return False

    seekable = isatty = readable


class Stream:
    """Standard output or error: lines go out whole, and what has no end soon after."""

    encoding, errors, newlines, line_buffering, closed = 'utf-8', 'backslashreplace', None, True, False
    mode = 'w'
    last = None
    # A child may have written to the descriptors since the agent last read them.
    children = False
    held = set()
    wake = threading.Event()
    flusher = None

    def __init__(self, fd, name):
        self.fd, self.name, self.waiting = fd, name, []
        self.buffer = Pipe(fd, self)

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError('write() argument must be str, not ' + type(text).__name__)
        with gate:
            for other in streams:
                if other is not self and other.waiting:
                    other.flush_or_drop()
            self.waiting.append(text)
            if '\n' in text or len(text) > 4096 or os.getpid() != gate.ours:
                self.flush()
            elif self not in Stream.held:
                self.later()
        return len(text)

    def later(self):
        Stream.held.add(self)
        if not Stream.flusher:
            Stream.flusher = threading.Thread(target=Stream.keep_flushing, daemon=True, name='output')
            Stream.flusher.start()
        Stream.wake.set()

    @staticmethod
    def keep_flushing():
        import time
        while Stream.wake.wait():
            Stream.wake.clear()
            time.sleep(FLUSH_S)
            for stream in list(Stream.held):
                stream.flush_or_drop()

    def turn(self):
        # What was written to the other stream, or by a child, before this is to be seen before it.
        if gate.open and (Stream.children or Stream.last is not self):
            if (Stream.children or Stream.last) and os.getpid() == gate.ours:
                if Stream.last:
                    Stream.last.flush()
                # One that ends from here on may write once more.
                left = Stream.children and has_children()
                say(SYNC, wait=True)
                Stream.children = left
            Stream.last = self

    def flush(self):
        with gate:
            Stream.held.discard(self)
            if self.waiting:
                text, self.waiting = ''.join(self.waiting), []
                self.turn()
                write_whole(self.fd, text.encode('utf-8', 'backslashreplace'))

    def flush_or_drop(self):
        try:
            self.flush()
        except OSError:
            self.waiting.clear()

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def fileno(self):
        return self.fd

    def writable(self):
        return True

    def isatty(self):
        return False

    readable = seekable = isatty

    def read(self, *_):
        raise OSError('not readable')

    readline = read

    def reconfigure(self, **_):
        pass

    def close(self):
        pass

    def detach(self):
        return self.buffer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.flush()

    def __iter__(self):
        return self

    def __next__(self):
        self.read()


streams = Stream(1, '<stdout>'), Stream(2, '<stderr>')


def has_children():
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def settled(start):
    """Has all that was printed read before a child starts, which writes to the same descriptors."""

    def starts(*args, **how):
        if gate.open and os.getpid() == gate.ours:
            with gate:
                for stream in streams:
                    stream.flush_or_drop()
                say(SYNC, wait=True)
                Stream.children = True
        return start(*args, **how)

    starts.__name__, starts.__doc__ = start.__name__, start.__doc__
    return starts


def settle_before_children():
    import _posixsubprocess
    places = [(os, name) for name in ('fork', 'forkpty', 'posix_spawn', 'posix_spawnp', 'system')]
    for module, name in places + [(_posixsubprocess, 'fork_exec')]:
        setattr(module, name, settled(getattr(module, name)))


