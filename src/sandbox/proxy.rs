//! The one way out of a command's own network: an HTTP proxy that knows hosts.
//!
//! It passes `CONNECT` and plain HTTP to the hosts that were allowed for this command, looks names up itself, and sends
//! to no address of this machine or of a private network unless that address itself was allowed. Deliberately absent:
//! who allows a host (`machine/gate.rs`), and looking into what is sent.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The most that a request may take until its empty line.
const HEAD: usize = 16 * 1024;
/// How long a client may take to say what it wants, and a host to answer the call.
const PATIENCE: Duration = Duration::from_secs(20);
/// Connections of one command at once; the others wait.
const AT_ONCE: usize = 64;

/// A proxy for one command. Ends with this value.
#[derive(Debug)]
pub(crate) struct Proxy {
    task: JoinHandle<()>,
    refused: Arc<Mutex<BTreeSet<String>>>,
}

impl Proxy {
    /// Answers on a listener in the command's network, and lets through to these hosts.
    pub(crate) fn serve(listener: std::net::TcpListener, hosts: &[String]) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let refused = Arc::new(Mutex::new(BTreeSet::new()));
        let door = Arc::new(Door { hosts: hosts.iter().map(|host| plain(host)).collect(), refused: refused.clone() });
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            loop {
                if open.len() >= AT_ONCE {
                    let _ = open.join_next().await;
                }
                tokio::select! {
                    accepted = listener.accept() => match accepted {
                        Ok((stream, _)) => {
                            let door = door.clone();
                            // What a client or a host does wrong ends its own connection.
                            open.spawn(async move { drop(door.pass(stream).await) });
                        }
                        // Out of descriptors, most likely: some connection has to end first.
                        Err(_) if !open.is_empty() => drop(open.join_next().await),
                        Err(_) => return,
                    },
                    Some(_) = open.join_next() => {}
                }
            }
        });
        Ok(Self { task, refused })
    }

    /// The hosts that were asked for and not allowed.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Door {
    hosts: BTreeSet<String>,
    refused: Arc<Mutex<BTreeSet<String>>>,
}

impl Door {
    async fn pass(&self, mut client: TcpStream) -> io::Result<()> {
        let read = tokio::time::timeout(PATIENCE, head(&mut client)).await;
        let Some((head, rest)) = read.map_err(|_| io::ErrorKind::TimedOut)?? else {
            return answer(&mut client, 400, "this is no request to a proxy").await;
        };
        let Some(wish) = Wish::read(&head) else {
            return answer(&mut client, 400, "this is no request to a proxy").await;
        };
        if !self.hosts.contains(&plain(&wish.host)) {
            self.refuse(&wish.host);
            return answer(&mut client, 403, &refusal(&wish.host)).await;
        }
        let mut server = match self.call(&wish).await {
            Ok(server) => server,
            Err(why) => return answer(&mut client, 502, &why).await,
        };
        match wish.forwarded {
            Some(head) => server.write_all(head.as_bytes()).await?,
            None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?,
        }
        server.write_all(&rest).await?;
        tokio::io::copy_bidirectional(&mut client, &mut server).await?;
        Ok(())
    }

    fn refuse(&self, host: &str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        // A command that tries every name there is must not fill our memory.
        if refused.len() < 20 {
            refused.insert(crate::text::prefix(host, 200).to_owned());
        }
    }

    async fn call(&self, wish: &Wish) -> Result<TcpStream, String> {
        let host = plain(&wish.host);
        let named = host.parse::<IpAddr>().ok();
        let found = tokio::time::timeout(PATIENCE, tokio::net::lookup_host((host.as_str(), wish.port))).await;
        let found = found.map_err(|_| format!("`{host}` could not be looked up in time"))?;
        let all: Vec<SocketAddr> = found.map_err(|error| format!("`{host}` is not known: {error}"))?.collect();
        // A name that leads into the machine or its network is a way round; the address itself says what it is.
        let allowed: Vec<SocketAddr> =
            all.into_iter().filter(|address| named.is_some() || is_public(address.ip())).collect();
        if allowed.is_empty() {
            return Err(format!("`{host}` leads to no public address"));
        }
        match tokio::time::timeout(PATIENCE, TcpStream::connect(allowed.as_slice())).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(format!("`{host}` cannot be reached: {error}")),
            Err(_) => Err(format!("`{host}` did not answer in time")),
        }
    }
}

fn refusal(host: &str) -> String {
    format!("`{host}` was not allowed for this command; call bash again with it in `hosts`")
}

/// A host as it is compared: lower case, without the brackets of an address and the dot of a whole name.
fn plain(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase()
}

/// Whether an address is one of the internet: not of this machine, a private network, a cloud's metadata or a group.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            let shared = a == 100 && (64..128).contains(&b);
            let protocol = a == 192 && b == 0 && c == 0;
            let measured = a == 198 && (18..20).contains(&b);
            let special = v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_broadcast()
                || v4.is_documentation()
                || v4.is_multicast();
            !(special || shared || protocol || measured || a == 0 || a >= 240)
        }
        IpAddr::V6(v6) => {
            if let Some(v4) = v6.to_ipv4() {
                return is_public(IpAddr::V4(v4));
            }
            let segments = v6.segments();
            // Addresses that carry one of the fourth version inside: 6to4 and NAT64.
            let inside = |high: u16, low: u16| {
                let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
                IpAddr::from([a, b, c, d])
            };
            match segments {
                [0x2002, high, low, ..] => is_public(inside(high, low)),
                [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public(inside(high, low)),
                [first, ..] => {
                    let local = (first & 0xfe00) == 0xfc00 || (first & 0xffc0) == 0xfe80 || (first & 0xffc0) == 0xfec0;
                    let documentation = first == 0x2001 && segments[1] == 0xdb8;
                    !(local || documentation || v6.is_multicast() || v6.is_unspecified())
                }
            }
        }
    }
}

/// What a client wants.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    host: String,
    port: u16,
    /// The head for the host itself; `None` where the client wants a tunnel.
    forwarded: Option<String>,
}

impl Wish {
    fn read(head: &str) -> Option<Self> {
        let (first, rest) = head.split_once("\r\n")?;
        let mut words = first.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() || !version.starts_with("HTTP/1.") {
            return None;
        }
        if method == "CONNECT" {
            let (host, port) = authority(target)?;
            return Some(Self { host, port: port?, forwarded: None });
        }
        let target = target.strip_prefix("http://")?;
        let end = target.find(['/', '?']).unwrap_or(target.len());
        let (host, port) = authority(&target[..end])?;
        let path =
            if target[end..].starts_with('/') { target[end..].to_owned() } else { format!("/{}", &target[end..]) };
        let mut forwarded = format!("{method} {path} {version}\r\n");
        for line in rest.split("\r\n") {
            let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
            // One request a connection: the next one may be for another host.
            if !matches!(name.as_str(), "proxy-connection" | "connection" | "proxy-authorization" | "") {
                forwarded.push_str(line);
                forwarded.push_str("\r\n");
            }
        }
        forwarded.push_str("Connection: close\r\n\r\n");
        Some(Self { host, port: port.unwrap_or(80), forwarded: Some(forwarded) })
    }
}

/// `host`, `host:port`, `[address]:port`; nothing with a user in it.
fn authority(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.rfind(':') {
        Some(at) if !text[at..].contains(']') => (&text[..at], Some(text[at + 1..].parse().ok()?)),
        _ => (text, None),
    };
    let sound = !host.is_empty()
        && host.len() <= 255
        && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._[]:".contains(c));
    sound.then(|| (host.to_owned(), port))
}

/// The head of a request and what came with it; `None` for one that is too long or no text.
async fn head(client: &mut TcpStream) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = bytes.split_off(at + 4);
            return Ok(String::from_utf8(bytes).ok().map(|head| (head, rest)));
        }
        if bytes.len() > HEAD || client.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
}

async fn answer(client: &mut TcpStream, status: u16, text: &str) -> io::Result<()> {
    let reason = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        _ => "Bad Gateway",
    };
    let length = text.len() + 1;
    let head = format!("HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n");
    let whole = format!("{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{text}\n");
    client.write_all(whole.as_bytes()).await?;
    client.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_one_host_or_is_none() {
        let host = |head: &str| Wish::read(head).map(|wish| (wish.host, wish.port));
        let named = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(host("CONNECT crates.io:443 HTTP/1.1\r\n\r\n"), named("crates.io", 443));
        assert_eq!(host("CONNECT [::1]:443 HTTP/1.1\r\n\r\n"), named("[::1]", 443));
        assert_eq!(host("GET http://a.example/x?y HTTP/1.1\r\nHost: b.example\r\n\r\n"), named("a.example", 80));
        for head in [
            "CONNECT crates.io HTTP/1.1\r\n\r\n",
            "CONNECT user@crates.io:443 HTTP/1.1\r\n\r\n",
            "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http://user:pass@a.example/ HTTP/1.1\r\n\r\n",
            "GET https://a.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example/ b HTTP/1.1\r\n\r\n",
            "GET http:///x HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert_eq!(host(head), None, "{head}");
        }
    }

    #[test]
    fn a_plain_request_goes_on_to_the_host_as_it_would_without_a_proxy() {
        let head = "GET http://a.example:81/x?y HTTP/1.1\r\nHost: a.example\r\nProxy-Connection: keep-alive\r\n\
                    Connection: keep-alive\r\nX: 1\r\n\r\n";
        let forwarded = Wish::read(head).unwrap().forwarded.unwrap();
        assert_eq!(forwarded, "GET /x?y HTTP/1.1\r\nHost: a.example\r\nX: 1\r\nConnection: close\r\n\r\n");
    }

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for address in ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "198.51.99.1"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "172.16.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    /// Asks a proxy for `head` and gives all it answers.
    async fn ask(hosts: &[String], head: String) -> (String, Vec<String>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = Proxy::serve(listener, hosts).unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(head.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        client.read_to_end(&mut text).await.unwrap();
        (String::from_utf8(text).unwrap(), proxy.refused())
    }

    #[tokio::test]
    async fn an_allowed_host_is_reached_and_no_other() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let served = tokio::spawn(async move {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut bytes = vec![0; 1024];
            let count = stream.read(&mut bytes).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nreached").await.unwrap();
            String::from_utf8_lossy(&bytes[..count]).into_owned()
        });
        let request = |host: &str| format!("GET http://{host}:{port}/x HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let allowed = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let (text, refused) = ask(&allowed, request("localhost")).await;
        assert!(text.starts_with("HTTP/1.1 502") && text.contains("no public address"), "{text}");
        assert!(refused.is_empty());
        let (text, refused) = ask(&allowed, request("127.0.0.2")).await;
        assert!(text.starts_with("HTTP/1.1 403") && text.contains("`hosts`"), "{text}");
        assert_eq!(refused, ["127.0.0.2"]);
        let (text, _) = ask(&allowed, "nonsense\r\n\r\n".to_owned()).await;
        assert!(text.starts_with("HTTP/1.1 400"), "{text}");
        let (text, refused) = ask(&allowed, request("127.0.0.1")).await;
        assert!(text.ends_with("reached") && refused.is_empty(), "{text}");
        assert!(served.await.unwrap().starts_with("GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\n"));
    }
}
