//! Clients of a server with a certificate of a private authority: the command line and both SDKs.

use crate::programs::{ProgramOutput, checkout, run};
use isolet_kit::https::Authority;
use isolet_kit::{Options, Pty, SOON, Server, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::{fs, io};
use tempfile::TempDir;

const PYTHON: &str = "\
from isolet import Isolet
with Isolet() as client, client.sandbox('python') as sandbox:
    print(sandbox.exec('echo from python').stdout, end='')
    with sandbox.shell() as shell:
        print(shell.run('echo by socket').stdout, end='')
";
const TYPESCRIPT: &str = "\
import { getSandbox, Isolet } from '@isolet/sdk';
const sandbox = getSandbox(new Isolet(), 'node');
process.stdout.write((await sandbox.exec('echo from node')).stdout);
const shell = sandbox.shell();
process.stdout.write((await shell.run('echo by socket')).stdout);
await shell.close();
";

struct Secured {
    server: Server,
    folder: TempDir,
}

impl Secured {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::new();
        let pair = authority.issue(&["127.0.0.1", "localhost"]);
        let (certificate, key) = pair.write(folder.path());
        fs::write(folder.path().join("ca.pem"), authority.pem()).expect("it is written");
        let server = Options::new().tls(&certificate, &key, &authority.pem()).start();
        Self { server, folder }
    }

    fn command(&self) -> Command {
        let mut command = self.server.program();
        command.env_remove("ISOLET_CA");
        command
    }

    fn isolet(&self, args: &[&str]) -> ProgramOutput {
        run(self.server.program().args(args))
    }
}

#[test]
fn every_kind_of_client_command_works_over_tls() {
    let secured = Secured::start();
    let server = &secured.server;
    assert_eq!(secured.isolet(&["exec", "a", "echo one"]).well().out, "one\n");
    let session = &["exec", "a", "--session", "s", "echo two"];
    assert_eq!(secured.isolet(session).well().out, "two\n");
    let ca = secured.folder.path().join("ca.pem");
    let listed = run(secured.command().arg("--ca").arg(&ca).arg("ls")).well().out;
    assert!(listed.contains('a'), "{listed}");

    let mut shell = server.program();
    shell.args(["shell", "a"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().expect("it starts");
    let mut input = shell.stdin.take().expect("a pipe");
    input.write_all(b"echo by shell\n").expect("it is written");
    drop(input);
    let output = shell.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "by shell\n");

    let mut attach = server.program();
    attach.args(["attach", "a"]);
    let mut terminal = Pty::start(&attach, 80, 24);
    terminal.sees("/workspace");
    terminal.line("echo at''tached", "attached");
    terminal.type_in("\x1c\x04");
    assert_eq!(terminal.ended(), 0, "{}", terminal.text());
}

#[test]
fn forward_and_mcp_work_over_tls() {
    let secured = Secured::start();
    let server = &secured.server;
    let sandbox = server.sandbox();
    sandbox.listen(8000);
    let mut forward = server.program();
    forward.args(["forward", &sandbox.id, "0:8000"]).stderr(Stdio::piped());
    let mut forward = forward.spawn().expect("it starts");
    let mut line = String::new();
    let stderr = forward.stderr.take().expect("a pipe");
    BufReader::new(stderr).read_line(&mut line).expect("it says where");
    let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next());
    let port: u16 = port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it connects");
    stream.write_all(b"GET /status/418 HTTP/1.0\r\n\r\n").expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains(" 418 "), "{answer}");
    forward.kill().expect("our child");
    forward.wait().expect("it ends");

    let mut mcp = server.program();
    mcp.args(["mcp", "--sandbox", &sandbox.id]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut mcp = mcp.spawn().expect("it starts");
    let mut input = mcp.stdin.take().expect("a pipe");
    let mut output = BufReader::new(mcp.stdout.take().expect("a pipe"));
    let mut ask = |request: &str| {
        writeln!(input, "{request}").expect("it is sent");
        let mut line = String::new();
        output.read_line(&mut line).expect("an answer");
        line
    };
    ask(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#,
    );
    let listed = ask(
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"sandbox_list\",\"arguments\":{}}}",
    );
    assert!(listed.contains(&sandbox.id), "{listed}");
    drop(input);
    wait_until("it ends", SOON, || mcp.try_wait().expect("our child"));
}

/// Listens on an address that the certificate does not name, and relays one connection to the
/// server. Returns the port.
fn relay_from_unnamed_address(server: u16) -> u16 {
    let listener = TcpListener::bind(("127.0.0.2", 0)).expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().expect("a client");
        let upstream = TcpStream::connect(("127.0.0.1", server)).expect("the server");
        let mut to = upstream.try_clone().expect("it");
        let mut from = client.try_clone().expect("it");
        let sending = std::thread::spawn(move || io::copy(&mut from, &mut to));
        let _ = io::copy(&mut &upstream, &mut &client);
        let _ = client.shutdown(Shutdown::Both);
        drop(sending);
    });
    port
}

#[test]
fn a_certificate_or_an_address_that_is_wrong_is_explained() {
    let secured = Secured::start();
    let port = secured.server.port();
    let refused = |command: &mut Command, reason: &str| {
        let said = run(command.arg("ls"));
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{}", said.err);
        assert!(said.err.contains(reason), "{reason}: {}", said.err);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    };
    refused(&mut secured.command(), "--ca");
    let other = secured.folder.path().join("other.pem");
    fs::write(&other, Authority::new().pem()).expect("it is written");
    refused(secured.command().env("ISOLET_CA", &other), "is not accepted");
    refused(secured.command().env("ISOLET_CA", secured.folder.path().join("no")), "cannot read");
    fs::write(&other, "").expect("it is written");
    refused(secured.command().env("ISOLET_CA", &other), "no certificate");
    let elsewhere = format!("https://127.0.0.2:{}", relay_from_unnamed_address(port));
    refused(secured.server.program().env("ISOLET_URL", elsewhere), "not valid for");
    let plain = format!("http://127.0.0.1:{port}");
    refused(secured.server.program().env("ISOLET_URL", plain), "https://");
    let own = Server::start();
    let tls = format!("https://127.0.0.1:{}", own.port());
    refused(own.program().env("ISOLET_URL", tls), "use http://");
    refused(own.program().env("ISOLET_URL", "ftp://127.0.0.1"), "https://");
}

/// Python's clients lost their first request at times because a ticket arrived while they sent it: 7 of 9,000
/// connections beside a load.
#[test]
fn no_session_ticket_follows_the_handshake() {
    let secured = Secured::start();
    let address = format!("localhost:{}", secured.server.port());
    let mut client = Command::new("openssl");
    client.args(["s_client", "-quiet", "-no_ign_eof", "-msg", "-4", "-connect", &address]);
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = client.spawn().expect("openssl is installed");
    let mut input = client.stdin.take().expect("a pipe");
    let request = format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    input.write_all(request.as_bytes()).expect("it is sent");
    let ended = client.wait_with_output().expect("it ends");
    drop(input);
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(said.contains("HTTP/1.1 200"), "{said}");
    assert!(said.contains("TLS 1.3") && !said.contains("NewSessionTicket"), "{said}");
}

#[test]
fn the_sdks_accept_a_private_authority() {
    let secured = Secured::start();
    let url = format!("https://localhost:{}", secured.server.port());
    let ca = secured.folder.path().join("ca.pem");
    let with_server = |command: &mut Command| {
        let command = command.env("ISOLET_URL", &url).env("ISOLET_API_KEY", secured.server.key());
        run(command).well().out
    };
    let python = checkout().join("target/python/bin/python");
    assert!(
        python.try_exists().expect("its folder"),
        "{} is missing: run `make python`",
        python.display()
    );
    let mut script = Command::new(python);
    script.args(["-c", PYTHON]).env("SSL_CERT_FILE", &ca);
    assert_eq!(with_server(&mut script), "from python\nby socket\n");

    let sdk = checkout().join("sdk/typescript");
    assert!(
        sdk.join("dist/node.js").try_exists().expect("its folder"),
        "the SDK is not built: run `make browser`"
    );
    // A package finds itself by its name.
    let mut script = Command::new("node");
    script.current_dir(sdk).args(["--input-type=module", "-e", TYPESCRIPT]);
    assert_eq!(with_server(script.env("NODE_EXTRA_CA_CERTS", &ca)), "from node\nby socket\n");
}
