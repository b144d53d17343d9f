//! A receiver of webhooks.

use isolet_kit::{SOON, Value, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request as a receiver got it.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    pub(crate) fn id(&self) -> String {
        self.header("webhook-id").to_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    pub(crate) fn kind(&self) -> String {
        self.json()["type"].as_str().expect("a type").to_owned()
    }

    pub(crate) fn sandbox(&self) -> String {
        self.json()["data"]["sandbox"].as_str().unwrap_or_default().to_owned()
    }
}

/// What a receiver answers, and what it has got.
#[derive(Debug, Default)]
struct Script {
    /// The status of each answer from now on, the next one last; empty: 204.
    answers: Vec<u16>,
    /// The status of all answers.
    always: Option<u16>,
    got: Vec<Received>,
}

/// A receiver on loopback.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    script: Arc<Mutex<Script>>,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        Self::on("127.0.0.1:0".parse().expect("an address"))
    }

    pub(crate) fn on(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("the port is free");
        let address = listener.local_addr().expect("an address");
        let script = Arc::<Mutex<Script>>::default();
        let own = Arc::clone(&script);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A server that is killed leaves half a request.
                let _ = answer(stream, &own);
            }
        });
        Self { address, script }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook?a=b", self.address)
    }

    pub(crate) fn got(&self) -> Vec<Received> {
        self.script.lock().expect("not poisoned").got.clone()
    }

    /// Answers the next requests with these statuses.
    pub(crate) fn answers(&self, statuses: &[u16]) {
        let reversed = statuses.iter().rev().copied().collect();
        self.script.lock().expect("not poisoned").answers = reversed;
    }

    /// Answers all requests with this status; `None`: 204.
    pub(crate) fn always(&self, status: Option<u16>) {
        self.script.lock().expect("not poisoned").always = status;
    }

    /// Waits for this many requests.
    #[track_caller]
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Received> {
        wait_until(&format!("{count} requests"), SOON, || {
            let got = self.got();
            (got.len() >= count).then_some(got)
        })
    }
}

fn answer(mut stream: TcpStream, script: &Mutex<Script>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut headers = Vec::new();
    let mut first = String::new();
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').expect("a header");
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    headers.push(("request".to_owned(), first.trim_end().to_owned()));
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8(body).expect("text");
    let status = {
        let mut script = script.lock().expect("not poisoned");
        script.got.push(Received { headers, body });
        script.always.or_else(|| script.answers.pop()).unwrap_or(204)
    };
    let elsewhere = "location: http://127.0.0.1:1/elsewhere\r\n";
    stream.write_all(
        format!("HTTP/1.1 {status} x\r\n{elsewhere}content-length: 0\r\nconnection: close\r\n\r\n")
            .as_bytes(),
    )
}
