READY_S = 28
PR_SET_CHILD_SUBREAPER = 36
# Debugging and type-based completion are disabled: loading them takes half of the kernel's start
# time. The kernel runs without these modules; the tenant's code can still import them.
WITHOUT = ('debugpy', 'jedi')
# The last commands are not written to the tenant's disk, of which each run would wait.
OPTIONS = ('--HistoryManager.enabled=False',)
# Names the environment variables of one run in the metadata of its request.
VARIABLES = 'isolet_env'
STRUCTURED = os.environ.pop('ISOLET_CONTEXT_STRUCTURED', None) is not None


def adopt():
    # The kernel gets its own session, so that its leftover processes can be identified.
    import ctypes
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Without:
    """While these are read, some of what they would read is not there."""

    def __enter__(self):
        self.held = [name for name in WITHOUT if name not in sys.modules]
        sys.modules.update(dict.fromkeys(self.held))

    def __exit__(self, *_):
        for name in self.held:
            del sys.modules[name]


def prepare(name):
    """Import everything that a kernel needs, before the kernel starts."""
    from importlib.machinery import PathFinder
    with Without():
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
        import jupyter_client.session, zmq
        specs = KernelSpecManager()
        try:
            spec = specs.get_kernel_spec(name)
        except NoSuchKernel:
            if AUTO:
                raise
            names = ', '.join(sorted(specs.find_kernel_specs())) or 'none'
            unable('there is no kernel %s in the image of this sandbox; of kernels there are: %s' % (name[:200], names))
        if ours(spec):
            try:
                from ipykernel.kernelapp import IPKernelApp
                # Some read it as they begin to run, where it would be found again.
                if PathFinder.find_spec('ipykernel.debugger', sys.modules['ipykernel'].__path__):
                    import ipykernel.debugger
                return lambda directory: Copied(directory, name, IPKernelApp)
            except Exception:
                # One that cannot be without them, or that is broken: its own start shows which.
                if AUTO:
                    raise
    return lambda directory: Started(directory, name, spec)


def ours(spec):
    """Whether a kernel is IPython's, begun as its package begins it, by this interpreter."""
    program, *rest = spec.argv
    same = program in ('python', 'python3', sys.executable) or os.path.realpath(program) == os.path.realpath(sys.executable)
    rest = [word for word in rest if word != '-Xfrozen_modules=off']
    return same and not spec.env and rest == ['-m', 'ipykernel_launcher', '-f', '{connection_file}']


class Copied:
    """IPython's kernel in a copy of this process: what both need is read and held once."""

    def __init__(self, directory, name, application):
        import gc
        self.returncode = None
        self.info = {'transport': 'ipc', 'ip': directory + '/kernel', 'kernel_name': name}
        self.info.update(key=secrets.token_hex(32), signature_scheme='hmac-sha256')
        for port, channel in enumerate(('shell', 'iopub', 'stdin', 'control', 'hb'), 1):
            self.info[channel + '_port'] = port
        file = directory + '/kernel.json'
        with open(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as to:
            json.dump(self.info, to)
        gc.freeze()
        self.pid = os.fork()
        if self.pid:
            return
        try:
            be_kernel(application, file)
        finally:
            os._exit(1)

    def alive(self):
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, 1 << 8
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode is None

    def interrupt(self):
        for send in (os.killpg, os.kill):
            try:
                return send(self.pid, signal.SIGINT)
            except OSError:
                pass


def lossless(application):
    """A kernel that waits until what it says is taken, where it would drop it."""
    import zmq

    class Lossless(application):
        def init_iopub(self, context):
            context.setsockopt(zmq.XPUB_NODROP, 1)
            super().init_iopub(context)
            # Of other kinds of sockets it is none.
            context.sockopts.pop(zmq.XPUB_NODROP, None)

    return Lossless


def complete(stream):
    """A stream that publishes all that children of the kernel have printed, before the run is over.

    ipykernel 6 and 7 read the pipe behind descriptors 1 and 2 in a thread, and nothing waits for that
    thread when a run ends. The thread of 6.17 also ends at the first byte that is not UTF-8: children
    block from then on, once the pipe is full.
    """
    import codecs, fcntl, struct, termios, threading

    class Complete(stream):
        def _setup_stream_redirects(self, name):
            self._pipe_lock = threading.Lock()
            self._pipe_decoder = codecs.getincrementaldecoder('utf-8')('replace')
            super()._setup_stream_redirects(name)

        def _watch_pipe_fd(self):
            poll = select.poll()
            poll.register(self._fid, select.POLLIN)
            while self._should_watch:
                if not any(event & select.POLLIN for _, event in poll.poll()):
                    return
                self.publish_pipe()

        def publish_pipe(self):
            """Publishes what the pipe holds now; what comes later is not waited for."""
            with self._pipe_lock:
                held = fcntl.ioctl(self._fid, termios.FIONREAD, struct.pack('i', 0))
                left, = struct.unpack('i', held)
                while left > 0:
                    part = os.read(self._fid, left)
                    left -= len(part)
                    self.write(self._pipe_decoder.decode(part))

    return Complete


def publish_children_whole():
    """Has the kernel's streams publish what its children print before a run's end."""
    from ipykernel import iostream
    if all(hasattr(iostream.OutStream, name) for name in ('_setup_stream_redirects', '_watch_pipe_fd')):
        iostream.OutStream = complete(iostream.OutStream)


def surrogates(pack):
    """Packs also what holds halves of a pair of them, which a kernel could not say: nor that it is idle."""

    def packs(said):
        try:
            return pack(said)
        except UnicodeError:
            return pack(json.loads(packed(said, default=str)))

    return packs


def be_kernel(application, file):
    os.setsid()
    forget()
    os.close(CONTROL)
    errors = os.dup(2)
    # It says itself, by its protocol, what it and its children print.
    for fd in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), fd)
    try:
        sys.argv = ['ipykernel_launcher.py', '-f', file]
        os.environ['JPY_PARENT_PID'] = str(os.getppid())
        publish_children_whole()
        app = lossless(application).instance()
        app.initialize(['-f', file, *OPTIONS])
        app.session.pack = surrogates(app.session.pack)
        tend(app.shell)
        if STRUCTURED:
            add_structured(app.shell.display_formatter)
        os.close(errors)
    except BaseException as error:
        os.write(errors, ('%s: %s\n' % (type(error).__name__, error)).encode('utf-8', 'replace'))
        os._exit(1)
    app.start()
    os._exit(0)


def tend(shell):
    """What a run leaves behind that would hang the next one, and `exit()`, are as in other contexts."""
    import fcntl
    process, streams = os.getpid(), (sys.stdout, sys.stderr)
    backups = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200) for fd in (0, 1, 2)]
    before = {}
    # A cell can run another one, which ends before it does.
    depth = 0

    def begin():
        nonlocal depth
        depth += 1
        if depth > 1:
            return
        request = getattr(shell, 'parent_header', None) or {}
        before.update(put_variables((request.get('metadata') or {}).get(VARIABLES) or {}))

    def over():
        if os.getpid() != process:
            # A copy that the code made of this process, and that came back here.
            try:
                sys.stdout.flush()
            finally:
                os._exit(0)
        nonlocal depth
        depth = max(depth - 1, 0)
        if depth:
            return
        # What would be interrupted from here on is the answer; the next run heeds interrupts again.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        put_variables(before)
        before.clear()
        for stream in streams:
            getattr(stream, 'publish_pipe', lambda: None)()
        sys.stdout, sys.stderr = streams
        for fd, backup in enumerate(backups):
            os.dup2(backup, fd)

    def leave():
        code = shell.keepkernel_on_exit
        raise SystemExit(*([code] if code else []))

    shell.showtraceback = whole(shell.showtraceback)
    shell.events.register('pre_execute', begin)
    shell.events.register('post_execute', over)
    shell.ask_exit = leave


def whole(show):
    """Has a traceback made without interrupts: they mean the code, whose end it reports."""
    import threading

    def shows(*args, **how):
        if threading.current_thread() is not threading.main_thread():
            return show(*args, **how)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return show(*args, **how)
        finally:
            signal.signal(signal.SIGINT, before)

    return shows


class Started:
    """Any other kernel, as its specification begins it."""

    def __init__(self, directory, name, spec):
        from jupyter_client.manager import KernelManager
        # Kernels of other languages know no other transport.
        transport = 'ipc' if spec.language == 'python' else 'tcp'
        self.manager = KernelManager(kernel_name=name, transport=transport, connection_file=directory + '/kernel.json')
        # It warns of itself on standard error otherwise.
        os.environ.setdefault('PYDEVD_DISABLE_FILE_VALIDATION', '1')
        # A kernel of Python says itself what its children print; other kernels' children print here.
        nothing = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL}
        self.manager.start_kernel(env=dict(os.environ), **(nothing if spec.language == 'python' else {}))
        self.info = self.manager.get_connection_info()
        self.process = getattr(getattr(self.manager, 'provisioner', None), 'process', None)
        self.pid = getattr(self.process, 'pid', None)

    def alive(self):
        return self.manager.is_alive() if self.process is None else self.process.poll() is None

    @property
    def returncode(self):
        return getattr(self.process, 'returncode', None)

    def interrupt(self):
        self.manager.interrupt_kernel()


def children():
    with open('/proc/self/task/%d/children' % os.getpid()) as file:
        return [int(pid) for pid in file.read().split()]


def reap(kernel, hard=False):
    """Takes notice of what the kernel left behind and has ended; `hard`: all of it ends."""
    until = time.monotonic() + 1
    while True:
        left = [pid for pid in children() if pid != kernel.pid]
        for pid in left:
            try:
                if hard:
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except OSError:
                pass
        if not (hard and left) or time.monotonic() > until:
            return
        time.sleep(.005)


def end(kernel):
    """The kernel has ended: so does this, in the same way, with what it left behind."""
    code = kernel.returncode
    reap(kernel, hard=True)
    if code is not None and code < 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(1 if code is None else code & 255)
