//! A connection to etcd that a test can cut for one node.

use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::io::copy_bidirectional;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Passes on bytes of TCP connections unless it is cut.
pub(crate) struct Relay {
    port: u16,
    is_cut: Arc<watch::Sender<bool>>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// Listens, and connects to a port of the loopback interface.
    pub(crate) async fn to(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_cut = Arc::new(watch::Sender::new(false));
        let cut = Arc::clone(&is_cut);
        let accepting = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut cut = cut.subscribe();
                tokio::spawn(async move {
                    if *cut.borrow() {
                        return;
                    }
                    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await
                    else {
                        return;
                    };
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = cut.wait_for(|cut| *cut) => {}
                    }
                });
            }
        });
        Self { port, is_cut, accepting }
    }

    /// The URL for a client of etcd.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends all connections and refuses new ones, or stops doing so.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cut(true);
        self.accepting.abort();
    }
}
