# The driver of a context of a Jupyter kernel: starts the kernel, has it run by Jupyter's messaging
# protocol what it is sent on descriptor 3, and says there what came of it. It runs as the tenant,
# beside the tenant's code, and is trusted with nothing.
import sys
sys.path[:] = [path for path in sys.path if path]
import json, os, re, signal, subprocess, tempfile, time

CONTROL = 3
RUN = 1
READY, DISPLAY, ERROR, DONE, SYNC, UNABLE = 1, 2, 3, 4, 5, 6
# A bundle above this is cut: its largest kinds are left out, and that is told.
BUNDLE_BYTES_MAX = 8 * 1024 * 1024
TEXT_BYTES_MAX = 1024 * 1024
READY_S = 28
POLL_MS = 100
# After a run's reply, for what it has shown; a kernel drops what is not taken in time, also its
# word that it is idle.
QUIET_S = 2
PR_SET_CHILD_SUBREAPER = 36
END_OF_FILE = '\x04'


def read_whole(count):
    parts = []
    while count:
        part = os.read(CONTROL, min(count, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        count -= len(part)
    return b''.join(parts)


def read_frame():
    head = read_whole(5)
    return head[4], read_whole(int.from_bytes(head[:4], 'big'))


def write_whole(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def say(kind, payload=b'', wait=False):
    write_whole(CONTROL, len(payload).to_bytes(4, 'big') + bytes([kind]) + payload)
    if wait:
        read_frame()


def unable(text):
    say(UNABLE, text.encode('utf-8', 'replace')[:2000])
    os._exit(1)


class Interrupts:
    """Counts them: the kernel is told of them between two messages."""

    due = False

    def come(self, *_):
        self.due = True


interrupts = Interrupts()


def start(name):
    """The kernel, and what speaks with it."""
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
        from jupyter_client.manager import KernelManager
    except ImportError:
        unable('there is no Jupyter in the image of this sandbox: it needs the package ipykernel')
    directory = tempfile.mkdtemp(prefix='kernel-')
    manager = KernelManager(kernel_name=name, transport='ipc', connection_file=directory + '/kernel.json')
    # It warns of itself on standard error otherwise.
    os.environ.setdefault('PYDEVD_DISABLE_FILE_VALIDATION', '1')
    try:
        manager.start_kernel(env=dict(os.environ), **streams(KernelSpecManager().get_kernel_spec(name)))
    except NoSuchKernel:
        names = ', '.join(sorted(KernelSpecManager().find_kernel_specs())) or 'none'
        unable('there is no kernel %s in the image of this sandbox; of kernels there are: %s' % (name[:200], names))
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=READY_S)
    return manager, client


def streams(spec):
    # A kernel of Python says itself what its children print; other kernels' children print here.
    if spec.language != 'python':
        return {}
    return {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL}


def adopt():
    # The kernel has a session of its own: what it leaves behind could not be told from others' else.
    import ctypes
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children():
    with open('/proc/self/task/%d/children' % os.getpid()) as file:
        return [int(pid) for pid in file.read().split()]


def reap(manager, hard=False):
    """Takes notice of what the kernel left behind and has ended; `hard`: all of it ends."""
    kernel = getattr(getattr(manager, 'provisioner', None), 'pid', None)
    until = time.monotonic() + 1
    while True:
        left = [pid for pid in children() if pid != kernel]
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


def end(manager):
    """The kernel has ended: so does this, in the same way, with what it left behind."""
    process = getattr(getattr(manager, 'provisioner', None), 'process', None)
    code = getattr(process, 'returncode', None)
    reap(manager, hard=True)
    if code is not None and code < 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(1 if code is None else code & 255)


class Run:
    """One run, until the kernel is idle again."""

    last = None

    def __init__(self, manager, client, order):
        import zmq
        self.manager, self.client = manager, client
        given = order.get('stdin')
        self.lines = None if given is None else given.splitlines()
        self.fault = None
        self.replied = None
        self.idle = False
        self.id = client.execute(order['code'], allow_stdin=given is not None, stop_on_error=False)
        self.poller = zmq.Poller()
        self.channels = [
            (client.iopub_channel.socket, client.get_iopub_msg, self.shown),
            (client.stdin_channel.socket, client.get_stdin_msg, self.asked),
            (client.shell_channel.socket, client.get_shell_msg, self.answered),
        ]
        for socket, *_ in self.channels:
            self.poller.register(socket, zmq.POLLIN)

    def finish(self):
        while not (self.idle and self.replied):
            if interrupts.due:
                interrupts.due = False
                self.manager.interrupt_kernel()
            came = dict(self.poller.poll(POLL_MS))
            for socket, get, take in self.channels:
                if socket in came:
                    take(get(timeout=1))
            if not came and not self.manager.is_alive():
                end(self.manager)
            if not came and self.replied and time.monotonic() - self.replied > QUIET_S:
                return

    def mine(self, message):
        return message['parent_header'].get('msg_id') == self.id

    def shown(self, message):
        kind, content = message['msg_type'], message['content']
        if kind == 'stream':
            self.write(2 if content.get('name') == 'stderr' else 1, content.get('text', ''))
        elif kind in ('display_data', 'update_display_data', 'execute_result'):
            show('result' if kind == 'execute_result' else 'display', content)
        elif kind == 'error' and self.mine(message):
            self.fault = content
        elif kind == 'status' and self.mine(message):
            self.idle = content.get('execution_state') == 'idle'

    def asked(self, message):
        prompt = message['content'].get('prompt', '')
        self.write(1, prompt)
        self.client.input(self.lines.pop(0) if self.lines else END_OF_FILE)

    def answered(self, message):
        if not self.mine(message):
            return
        content = message['content']
        self.replied = time.monotonic()
        if content.get('status') == 'error' and self.fault is None:
            self.fault = content
        for page in content.get('payload') or ():
            if page.get('source') == 'page':
                show('display', {'data': {kind: plain(said) for kind, said in page['data'].items()}})

    def write(self, fd, text):
        # What was written to the other stream before this is to be seen before it.
        if Run.last not in (None, fd):
            say(SYNC, wait=True)
        Run.last = fd
        write_whole(fd, text.encode('utf-8', 'backslashreplace'))


def size(said):
    return len(said) if isinstance(said, str) else 0


def show(kind, content):
    data, cut = dict(content.get('data') or {}), {}
    text = data.get('text/plain')
    if isinstance(text, str) and len(text) > TEXT_BYTES_MAX:
        cut['text/plain'] = len(text)
        data['text/plain'] = text[:TEXT_BYTES_MAX]
    while sum(map(size, data.values())) > BUNDLE_BYTES_MAX:
        largest = max(data, key=lambda name: size(data[name]))
        cut[largest] = size(data.pop(largest))
    said = {'kind': kind, 'data': data, 'metadata': content.get('metadata') or {}}
    if cut:
        said['cut'] = cut
    said = json.dumps(said, default=str).encode('utf-8', 'surrogatepass')
    if len(said) > 2 * BUNDLE_BYTES_MAX:
        said = json.dumps({'kind': kind, 'data': {}, 'metadata': {}, 'cut': {'application/json': len(said)}}).encode()
    say(DISPLAY, said, wait=True)


def plain(text):
    return re.sub('\x1b\\[[0-9;]*m', '', str(text))


def fault(content):
    lines = [line for part in content.get('traceback') or () for line in plain(part).splitlines()]
    if len(lines) > 400:
        lines = lines[:200] + ['… %d lines …' % (len(lines) - 400)] + lines[-200:]
    said = {
        'name': plain(content.get('ename') or 'Error')[:1000],
        'message': plain(content.get('evalue') or '')[:TEXT_BYTES_MAX],
        'traceback': [line[:4000] for line in lines],
    }
    return json.dumps(said).encode('utf-8', 'surrogatepass')


def serve():
    os.set_inheritable(CONTROL, False)
    signal.signal(signal.SIGINT, interrupts.come)
    adopt()
    manager, client = start(os.environ.pop('ISOLET_CONTEXT_KERNEL', 'python3'))
    say(READY)
    while True:
        kind, body = read_frame()
        if kind != RUN:
            continue
        number, order = body[:8], json.loads(body[8:])
        interrupts.due = False
        Run.last = None
        run = Run(manager, client, order)
        run.finish()
        reap(manager)
        if run.fault is not None:
            say(ERROR, fault(run.fault))
        say(DONE, number)


if __name__ == '__main__':
    serve()
