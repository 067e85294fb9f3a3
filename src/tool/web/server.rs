//! A web server on loopback for tests: it answers each path with what it was given, and keeps what it was asked.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The answer to one path: everything after the status line's version.
pub(in crate::tool) struct Reply {
    path: &'static str,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    pub(in crate::tool) fn new(path: &'static str, head: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self { path, head: head.into(), body: body.into() }
    }

    pub(in crate::tool) fn of_kind(path: &'static str, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::new(path, format!("200 OK\r\nContent-Type: {kind}"), body)
    }

    pub(in crate::tool) fn redirect(path: &'static str, to: &str) -> Self {
        Self::new(path, format!("302 Found\r\nLocation: {to}"), "")
    }
}

pub(in crate::tool) struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(in crate::tool) fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (kept, ends) = (Arc::clone(&asked), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                serve(&stream, &replies, &kept);
            }
        });
        Self { address, asked, over, thread: Some(thread) }
    }

    pub(in crate::tool) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(in crate::tool) fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.address.port())
    }

    /// Each request with its headers.
    pub(in crate::tool) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut stream: &TcpStream, replies: &[Reply], asked: &Mutex<Vec<String>>) {
    let head: Vec<String> =
        BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let path = head.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
    asked.lock().unwrap().push(head.join("\n"));
    let plain = path.split('?').next().unwrap_or_default();
    let answer = match replies.iter().find(|reply| reply.path == plain) {
        Some(reply) => {
            [format!("HTTP/1.1 {}\r\nConnection: close\r\n\r\n", reply.head).as_bytes(), &reply.body].concat()
        }
        None => b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\nno such page".to_vec(),
    };
    // Who has heard enough hangs up.
    let _ = stream.write_all(&answer);
}
