POLL_MS = 100
RECONNECT_MS = 5


class Client:
    """What speaks with a kernel, by Jupyter's messages over sockets of ZeroMQ."""

    def __init__(self, kernel, signals):
        import zmq
        from jupyter_client.session import Session
        self.kernel, self.signals = kernel, signals
        key = kernel.info['key']
        self.session = Session(key=key if isinstance(key, bytes) else key.encode())
        context = zmq.Context()
        # What is said of a run comes before the word that it is over: looked at in this order.
        self.iopub = self.connect(context, zmq.SUB, 'iopub')
        self.stdin = self.connect(context, zmq.DEALER, 'stdin')
        self.shell = self.connect(context, zmq.DEALER, 'shell')
        self.running, self.between = zmq.Poller(), zmq.Poller()
        for source in (self.iopub, self.stdin, self.shell, signals.wake):
            self.running.register(source, zmq.POLLIN)
            self.between.register(source, zmq.POLLIN)
        self.between.register(CONTROL, zmq.POLLIN)

    def connect(self, context, kind, channel):
        import zmq
        info, socket = self.kernel.info, context.socket(kind)
        socket.linger = 0
        socket.reconnect_ivl = RECONNECT_MS
        if kind == zmq.SUB:
            socket.subscribe(b'')
        else:
            # An answer to a question for input finds the way of its run.
            socket.identity = self.session.bsession
        mark = '-' if info['transport'] == 'ipc' else ':'
        socket.connect('%s://%s%s%d' % (info['transport'], info['ip'], mark, info[channel + '_port']))
        return socket

    def ready(self):
        """Waits until it answers, and until what it says to all is heard."""
        until = time.monotonic() + READY_S
        wait = RECONNECT_MS
        while not self.iopub.poll(wait):
            wait = min(2 * wait, POLL_MS)
            if not self.kernel.alive():
                end(self.kernel)
            if time.monotonic() > until:
                unable('the kernel did not answer in %d seconds' % READY_S)
            self.session.send(self.shell, 'kernel_info_request', {})

    def receive(self, socket):
        """The next message; none where it does not read, which is the code's doing."""
        import zmq
        try:
            _, parts = self.session.feed_identities(socket.recv_multipart(zmq.NOBLOCK))
            return self.session.deserialize(parts)
        except Exception:
            return None

    def wait(self, poller):
        """What has something to say, by what it is. Children that have ended are forgotten."""
        tells = self.kernel.pid is not None and poller is self.between
        came = dict(poller.poll(None if tells else POLL_MS))
        if self.signals.wake in came or not came:
            self.signals.taken()
            if not self.kernel.alive():
                came['ended'] = True
            reap(self.kernel)
        return came
