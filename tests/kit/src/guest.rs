//! Programs that listen on ports inside a sandbox.

use crate::shell::upgrade;
use crate::{SOON, Sandbox, Socket, wait_until};

const GUEST: &str = include_str!("guest.py");

impl Sandbox {
    /// Opens a WebSocket below the sandbox's path.
    ///
    /// # Errors
    /// The status of a refusal; 0 without an answer.
    pub fn socket(&self, rest: &str) -> Result<Socket, u16> {
        upgrade(&self.http, &self.path(rest)).map(|(socket, _)| socket)
    }

    /// Starts a program that listens on `port` of 127.0.0.1 inside the sandbox and reports the
    /// requests that it gets; `guest.py` lists its paths.
    #[track_caller]
    pub fn listen(&self, port: u16) {
        self.listen_at(port, "127.0.0.1");
    }

    /// Like [`Sandbox::listen`], on another address.
    #[track_caller]
    pub fn listen_at(&self, port: u16, address: &str) {
        let path = self.path("/files/guest.py");
        let saved = self.http.send("PUT", &path, Some(GUEST.as_bytes()));
        assert!(matches!(saved.status, 200..=204), "{}", saved.text());
        self.background(&format!("exec python3 /workspace/guest.py {port} {address}"));
        self.await_port(port);
    }

    /// Starts a program that reads a request head from each connection on `port`, answers with
    /// `bytes`, and closes the connection.
    #[track_caller]
    pub fn answers(&self, port: u16, bytes: &[u8]) {
        let path = self.path("/files/answer");
        let saved = self.http.send("PUT", &path, Some(bytes));
        assert!(matches!(saved.status, 200..=204), "{}", saved.text());
        self.background(&format!(
            "exec python3 -c '
import socket
server = socket.create_server((\"127.0.0.1\", {port}))
answer = open(\"/workspace/answer\", \"rb\").read()
while True:
    one, _ = server.accept()
    try:
        head = b\"\"
        while b\"\\r\\n\\r\\n\" not in head:
            piece = one.recv(65536)
            if not piece: break
            head += piece
        one.sendall(answer)
        # What lies unread at a close would take the answer back.
        one.shutdown(socket.SHUT_WR)
        one.settimeout(5)
        while one.recv(65536): pass
    except OSError: pass
    one.close()
'"
        ));
        self.await_port(port);
    }

    /// Starts a command line that keeps running until the sandbox ends.
    #[track_caller]
    pub fn background(&self, command: &str) {
        let command = command.replace('\'', "'\\''");
        self.exec(&format!("setsid bash -c '{command}' </dev/null >/tmp/background.log 2>&1 &"));
    }

    /// Waits until a program listens on `port`.
    #[track_caller]
    pub fn await_port(&self, port: u16) {
        wait_until(&format!("port {port} listens"), SOON, || {
            let all = self.http.get(&self.path("/ports")).expect(200).json();
            all.as_array()?.iter().any(|one| one["port"] == port).then_some(())
        });
    }
}
