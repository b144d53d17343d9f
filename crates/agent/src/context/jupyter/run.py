# A larger bundle is cut: its largest media types are left out, and the result says so.
BUNDLE_BYTES_MAX = 8 * 1024 * 1024
TEXT_BYTES_MAX = 1024 * 1024
# After a run's reply, for what it has shown, or the other way round; a kernel drops what is not taken
# in time, also its word that it is idle.
QUIET_S = 2
# After its end, for what it has said before.
LAST_MS = 20
END_OF_FILE = '\x04'


class Output:
    """What the kernel prints, on both of our streams, in the order in which it says so."""

    last = None
    running = False

    def write(self, fd, text):
        # What was written to the other stream before this is to be seen before it. Between runs
        # nothing is waited for: the answer could be the next run.
        if self.running and self.last not in (None, fd):
            say(SYNC, wait=True)
        self.last = fd
        write_whole(fd, text.encode('utf-8', 'backslashreplace'))

    def take(self, message):
        """Whether it was output."""
        if message['msg_type'] != 'stream':
            return False
        content = message['content']
        self.write(2 if content.get('name') == 'stderr' else 1, content.get('text', ''))
        return True


class Run:
    """One run, until the kernel is idle again."""

    def __init__(self, client, order, output):
        self.client, self.output = client, output
        self.lines = (order.get('stdin') or '').splitlines()
        self.fault = None
        self.begun = self.replied = self.idle = False
        self.quiet = None
        content = {'code': order['code'], 'silent': False, 'store_history': True, 'user_expressions': {}}
        # Also without input: its end is what `input()` meets then, as elsewhere.
        content.update(allow_stdin=True, stop_on_error=False)
        env = order.get('env') or {}
        if env and not isinstance(client.kernel, Copied):
            self.fault = {'ename': 'NotSupported', 'evalue': 'this kernel cannot set environment variables for one run'}
            self.replied = self.idle = True
            self.id = None
            return
        sent = client.session.send(client.shell, 'execute_request', content, metadata={VARIABLES: env})
        self.id = sent['header']['msg_id']
        self.takes = ((client.iopub, self.shown), (client.stdin, self.asked), (client.shell, self.answered))

    def finish(self):
        client, ended = self.client, False
        while not (self.idle and self.replied):
            came = client.wait(client.running)
            heard = False
            for socket, take in self.takes:
                message = client.receive(socket) if socket in came else None
                if message:
                    take(message)
                    heard = True
            self.interrupt()
            # Output from before the end is reported first.
            ended = ended or 'ended' in came
            if ended and not heard and not client.running.poll(LAST_MS):
                end(client.kernel)
            if heard or not (self.idle or self.replied):
                self.quiet = None
            elif self.quiet is None:
                self.quiet = time.monotonic()
            elif time.monotonic() - self.quiet > QUIET_S:
                return self.unanswered()

    def interrupt(self):
        """Passes an interrupt on while the code runs: not before, when the kernel would not heed it, and
        not after, when it would cut the answer."""
        signals = self.client.signals
        # A kernel that never says that it begins gets the second one.
        if signals.interrupts and (self.begun or signals.interrupts > 1):
            signals.interrupts = 0
            if not (self.replied or self.idle or self.fault):
                self.client.kernel.interrupt()

    def unanswered(self):
        if not self.replied and self.fault is None:
            self.fault = {'ename': 'KernelError', 'evalue': 'the kernel gave no answer to this run'}

    def mine(self, message):
        return message['parent_header'].get('msg_id') == self.id

    def shown(self, message):
        kind, content = message['msg_type'], message['content']
        if self.output.take(message):
            return
        if kind in ('display_data', 'update_display_data', 'execute_result'):
            show('result' if kind == 'execute_result' else 'display', content)
        elif kind == 'error' and self.mine(message):
            self.fault = content
        elif kind == 'execute_input':
            self.begun = self.begun or self.mine(message)
        elif kind == 'status' and self.mine(message):
            self.idle = content.get('execution_state') == 'idle'

    def asked(self, message):
        self.output.write(1, message['content'].get('prompt', ''))
        line = self.lines.pop(0) if self.lines else END_OF_FILE
        self.client.session.send(self.client.stdin, 'input_reply', {'value': line})

    def answered(self, message):
        if not self.mine(message):
            return
        content = message['content']
        self.replied = True
        if content.get('status') == 'error' and self.fault is None:
            self.fault = content
        for page in content.get('payload') or ():
            if page.get('source') == 'page':
                show('display', {'data': {kind: plain(said) for kind, said in page['data'].items()}})


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
    said = packed(said, default=str)
    if len(said) > 2 * BUNDLE_BYTES_MAX:
        said = packed({'kind': kind, 'data': {}, 'metadata': {}, 'cut': {'application/json': len(said)}})
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
    return packed(said)


