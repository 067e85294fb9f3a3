//! The proxy through which confined commands reach the network: HTTP, by names that were allowed for this call.
//!
//! It resolves names itself and connects to public addresses only, unless an address was allowed as such. Encrypted
//! traffic passes unread: the name in CONNECT is what is judged. Deliberately absent: who allows a host
//! (`machine/gate.rs`), and where the listener comes from (`gateway.rs`).

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Where commands find the proxy, in a network of their own.
pub(crate) const ADDRESS: &str = "http://127.0.0.1:41593";

/// The variables that programs look for a proxy in.
pub(crate) const VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Those that say what to reach without one.
pub(crate) const EXCEPTIONS: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// The loopback of a command is its own and is reached without the proxy.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The longest head of a request.
const HEAD: usize = 32 * 1024;

/// A client that says nothing, or a server that does not answer, is given up.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connections of one command at a time.
const CONNECTIONS: usize = 128;

/// How many hosts an answer can name.
const NAMED: usize = 8;

/// A host as rules and requests name it: lower case, without brackets and the last dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Host(String);

impl Host {
    /// None of what is no host: a path, a port, a space, a pattern.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bare = text.trim().trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Some(Self(address.to_canonical().to_string()));
        }
        let name = bare.strip_suffix('.').unwrap_or(bare).to_ascii_lowercase();
        let sound = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        // Digits alone would be read as an address by some resolvers: 2130706433 is 127.0.0.1.
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
        (name.len() <= 253 && name.split('.').all(sound) && !is_number).then_some(Self(name))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn address(&self) -> Option<IpAddr> {
        self.0.parse().ok()
    }

    /// The host as part of a URL.
    pub(crate) fn in_url(&self) -> String {
        if self.0.contains(':') { format!("[{}]", self.0) } else { self.0.clone() }
    }
}

/// What passes, and what was refused so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts {
    allowed: Arc<BTreeSet<Host>>,
    refused: Arc<Mutex<BTreeSet<Host>>>,
}

impl Hosts {
    /// Exactly these, not their subdomains.
    pub(crate) fn new(allowed: impl IntoIterator<Item = Host>) -> Self {
        Self { allowed: Arc::new(allowed.into_iter().collect()), refused: Arc::default() }
    }

    /// Hosts that the command wanted and did not reach for want of permission.
    pub(crate) fn refused(&self) -> Vec<String> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.iter().take(NAMED).map(|host| host.as_str().to_owned()).collect()
    }

    /// What a command must reach without the proxy: its own loopback, unless that of outside was allowed by address.
    pub(crate) fn exceptions(&self) -> String {
        let own = LOOPBACK.iter().filter(|name| !self.allowed.iter().any(|host| host.as_str() == **name));
        own.copied().collect::<Vec<_>>().join(",")
    }

    fn admits(&self, host: &Host) -> bool {
        let admits = self.allowed.contains(host);
        if !admits {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            if refused.len() < NAMED {
                refused.insert(host.clone());
            }
        }
        admits
    }
}

/// Serves until it is dropped; what it serves then ends with it.
pub(crate) async fn serve(listener: TcpListener, hosts: Hosts) -> Infallible {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((client, _)) => {
                    let hosts = hosts.clone();
                    // A client that goes away is no concern of the command's answer.
                    connections.spawn(async move { drop(pass(client, &hosts).await) });
                }
                // Out of descriptors: an accept at once would fail again.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// A request's way: where to, and what to send there first.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// Both sides speak for themselves after this.
    Tunnel {
        host: Host,
        port: u16,
    },
    Request {
        host: Host,
        port: u16,
        head: Vec<u8>,
    },
}

async fn pass(mut client: TcpStream, hosts: &Hosts) -> io::Result<()> {
    let Ok(read) = timeout(PATIENCE, head(&mut client)).await else { return Ok(()) };
    let (head, rest) = read?;
    let Some(wanted) = wanted(&head) else {
        return refuse(&mut client, "400 Bad Request", "this proxy takes CONNECT and http:// addresses only").await;
    };
    let (Wanted::Tunnel { host, port } | Wanted::Request { host, port, .. }) = &wanted;
    if !hosts.admits(host) {
        let said = format!(
            "the host `{0}` is not allowed; call bash again with \"hosts\": [\"{0}\"] to ask for permission",
            host.as_str()
        );
        return refuse(&mut client, "403 Forbidden", &said).await;
    }
    let mut server = match timeout(PATIENCE, connect(host, *port)).await {
        Ok(Ok(server)) => server,
        Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            return refuse(&mut client, "403 Forbidden", &error.to_string()).await;
        }
        Ok(Err(error)) => return refuse(&mut client, "502 Bad Gateway", &error.to_string()).await,
        Err(_) => return refuse(&mut client, "504 Gateway Timeout", "the host does not answer").await,
    };
    match &wanted {
        Wanted::Tunnel { .. } => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?,
        Wanted::Request { head, .. } => server.write_all(head).await?,
    }
    server.write_all(&rest).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

/// The head of a request with its empty line, and what came after it.
async fn head(client: &mut TcpStream) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = client.read(&mut buffer).await?;
        if count == 0 || head.len() + count > HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let from = head.len().saturating_sub(3);
        head.extend_from_slice(&buffer[..count]);
        if let Some(at) = head[from..].windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = head.split_off(from + at + 4);
            return Ok((head, rest));
        }
    }
}

/// What a head asks for; none if it is not sound.
fn wanted(head: &[u8]) -> Option<Wanted> {
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.trim_end_matches("\r\n").split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target, version) = (first.next()?, first.next()?, first.next()?);
    if first.next().is_some() || !version.starts_with("HTTP/1.") {
        return None;
    }
    if method == "CONNECT" {
        let (host, port) = authority(target)?;
        return Some(Wanted::Tunnel { host, port: port? });
    }
    let rest = strip_scheme(target)?;
    let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (place, path) = rest.split_at(at);
    let (host, port) = authority(place)?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    // One request a connection: the next one may be for another host.
    let mut sent = format!("{method} {slash}{path} {version}\r\nHost: {place}\r\nConnection: close\r\n");
    for line in lines {
        let (name, _) = line.split_once(':')?;
        let name = name.to_ascii_lowercase();
        if line.contains(['\r', '\n']) || name.trim() != name || name.is_empty() {
            return None;
        }
        if !matches!(name.as_str(), "host" | "connection" | "keep-alive" | "upgrade") && !name.starts_with("proxy-") {
            sent.push_str(line);
            sent.push_str("\r\n");
        }
    }
    sent.push_str("\r\n");
    Some(Wanted::Request { host, port: port.unwrap_or(80), head: sent.into_bytes() })
}

fn strip_scheme(target: &str) -> Option<&str> {
    let (scheme, rest) = target.split_once("://")?;
    scheme.eq_ignore_ascii_case("http").then_some(rest)
}

/// `host`, `host:port`, `[address]:port`. A name of a user before an `@` is refused: it would hide the host.
fn authority(text: &str) -> Option<(Host, Option<u16>)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port.parse().ok().filter(|port| *port > 0)?)),
        Some(_) | None => (text, None),
    };
    if host.contains(':') && !host.starts_with('[') {
        return None;
    }
    Some((Host::parse(host)?, port))
}

/// Connects to an address that may be reached. The address is looked up once and is the one connected to.
async fn connect(host: &Host, port: u16) -> io::Result<TcpStream> {
    if let Some(address) = host.address() {
        return TcpStream::connect((address, port)).await;
    }
    let found: Vec<SocketAddr> = lookup_host((host.as_str(), port)).await?.collect();
    let mut failed = io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("`{}` leads to an address that is not public; it must be allowed by its address", host.as_str()),
    );
    for address in found.iter().filter(|address| is_public(address.ip())) {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn refuse(client: &mut TcpStream, status: &str, said: &str) -> io::Result<()> {
    let length = said.len() + 1;
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\
         X-Refused: decode\r\n\r\n{said}\n"
    );
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await
}

/// Whether an address is one of the internet, and not of this machine, its networks, or a cloud's own.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        // Shared by carriers; some clouds have their metadata there.
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (b == 18 || b == 19))
        // Azure's own, with metadata.
        || address == Ipv4Addr::new(168, 63, 129, 16);
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let embedded = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match parts {
        // Translated to IPv4 on the way.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(embedded(high, low)),
        [0x2002, high, low, ..] => is_public_v4(embedded(high, low)),
        [0x2001, 0xdb8 | 0, ..] => false,
        // All that is given out as of today.
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(allowed: &[&str]) -> Hosts {
        Hosts::new(allowed.iter().map(|host| Host::parse(host).unwrap()))
    }

    #[test]
    fn a_host_is_a_name_or_an_address_and_nothing_else() {
        let parsed = |text: &str| Host::parse(text).map(|host| host.as_str().to_owned());
        assert_eq!(parsed("Crates.IO."), Some("crates.io".to_owned()));
        assert_eq!(parsed("[::1]"), Some("::1".to_owned()));
        assert_eq!(parsed("::ffff:10.0.0.1"), Some("10.0.0.1".to_owned()), "one address has one name");
        for wrong in [
            "",
            "a b",
            "*.crates.io",
            "a/b",
            "http://a",
            "a:80",
            "u@a",
            "2130706433",
            "0x7f000001",
            "127.1",
            "a..b",
            "ä.de",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_request_is_sent_on_to_the_host_that_was_judged_and_to_no_other() {
        let head = b"GET http://a.example:81/x?y HTTP/1.1\r\nHost: evil.example\r\nProxy-Authorization: x\r\n\
                     Connection: keep-alive\r\nAccept: */*\r\n\r\n";
        let Some(Wanted::Request { host, port, head }) = wanted(head) else { panic!("it is sound") };
        assert_eq!((host.as_str(), port), ("a.example", 81));
        let want = "GET /x?y HTTP/1.1\r\nHost: a.example:81\r\nConnection: close\r\nAccept: */*\r\n\r\n";
        assert_eq!(String::from_utf8(head).unwrap(), want);
        let tunnel = wanted(b"CONNECT A.example:443 HTTP/1.1\r\n\r\n");
        assert_eq!(tunnel, Some(Wanted::Tunnel { host: Host::parse("a.example").unwrap(), port: 443 }));
        for wrong in [
            "GET /x HTTP/1.1\r\n\r\n",
            "GET https://a.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example@evil.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nbroken\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nA : b\r\n\r\n",
            "CONNECT a.example HTTP/1.1\r\n\r\n",
            "CONNECT a.example:0 HTTP/1.1\r\n\r\n",
            "CONNECT ::1:80 HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert_eq!(wanted(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for text in ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::101:101"] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "198.18.0.1",
            "168.63.129.16",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001:db8::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    /// A server that answers each connection with what it was sent.
    async fn echo() -> (SocketAddr, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut buffer = [0; 4096];
                let count = client.read(&mut buffer).await.unwrap_or_default();
                let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
                let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{text}");
                let _ = client.write_all(answer.as_bytes()).await;
            }
        };
        (address, tokio::spawn(serve))
    }

    /// What the proxy answers to these bytes.
    async fn asked(hosts: &Hosts, request: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let talk = async {
            client.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            answer
        };
        tokio::select! {
            answer = timeout(Duration::from_secs(20), talk) => answer.unwrap(),
            never = serve(listener, hosts.clone()) => match never {},
        }
    }

    #[tokio::test]
    async fn an_allowed_address_is_reached_and_all_else_is_refused_and_named() {
        let (address, server) = echo().await;
        let allowed = hosts(&["127.0.0.1"]);
        let answer = asked(&allowed, &format!("GET http://{address}/hello HTTP/1.1\r\nA: b\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("GET /hello HTTP/1.1"), "{answer}");
        let tunnel = format!("CONNECT {address} HTTP/1.1\r\n\r\nGET /inside HTTP/1.1\r\n\r\n");
        let answer = asked(&allowed, &tunnel).await;
        assert!(answer.contains("Connection established") && answer.contains("GET /inside"), "{answer}");
        assert_eq!(allowed.refused(), [""; 0]);
        let answer = asked(&allowed, "CONNECT sub.crates.io:443 HTTP/1.1\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("\"hosts\": [\"sub.crates.io\"]"), "{answer}");
        assert_eq!(allowed.refused(), ["sub.crates.io"]);
        server.abort();
    }

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_is_refused_even_if_the_name_is_allowed() {
        let (address, server) = echo().await;
        let allowed = hosts(&["localhost"]);
        let request = format!("GET http://localhost:{}/ HTTP/1.1\r\n\r\n", address.port());
        let answer = asked(&allowed, &request).await;
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("not public"), "{answer}");
        server.abort();
    }

    #[test]
    fn a_command_reaches_its_own_loopback_without_the_proxy_unless_the_outer_one_is_allowed() {
        assert_eq!(hosts(&["crates.io"]).exceptions(), "localhost,127.0.0.1,::1");
        assert_eq!(hosts(&["127.0.0.1"]).exceptions(), "localhost,::1");
    }
}
