//! What `web_fetch` and `web_search` share: one bounded GET to an address that was looked at first.
//!
//! Never through a proxy: behind one, the address that was checked is not the one that is reached. No cookies, no
//! referrer, no redirect that is followed by itself. Deliberately absent: which hosts are free, and what a body means.

pub(super) mod address;
pub(super) mod foreign;
pub(super) mod html;
#[cfg(test)]
pub(super) mod server;

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Response, StatusCode, Url};

use super::Scope;
use crate::text;

/// For everything: all redirects and the whole body.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// Bytes of a body that are read; what follows is not.
pub(super) const BODY: usize = 2_000_000;

/// Bytes of the body of an answer that is no success; enough to see what the server says.
const REFUSAL: usize = 300;

const AGENT: &str = concat!("decode/", env!("CARGO_PKG_VERSION"));

#[derive(Debug, thiserror::Error)]
pub(super) enum WebError {
    #[error("`{host}` cannot be found: {source}")]
    Lookup { host: String, source: std::io::Error },
    #[error(transparent)]
    Address(#[from] address::Refused),
    #[error("`{host}` did not answer within {} s", LIMIT.as_secs())]
    TimedOut { host: String },
    #[error("the call was cut short")]
    Cut,
    #[error("the request to `{host}` failed: {cause}")]
    Failed { host: String, cause: String },
    #[error("`{url}` answered {status}{said}")]
    Status { url: String, status: StatusCode, said: String },
}

/// What a server answered.
#[derive(Debug)]
pub(super) enum Answered {
    Page(Page),
    /// Where it sends us instead; not gone to.
    Elsewhere(Url),
}

#[derive(Debug)]
pub(super) struct Page {
    /// As in `text/html`, in lower case; empty if the server does not say.
    pub(super) kind: String,
    /// As in `utf-8`, in lower case; empty if the server does not say.
    pub(super) charset: String,
    pub(super) body: Vec<u8>,
    /// Whether there is more than was read.
    pub(super) extent: Extent,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Extent {
    #[default]
    Whole,
    Cut,
}

/// The addresses of a host, as they are now.
pub(super) async fn look_up(url: &Url) -> Result<Vec<SocketAddr>, WebError> {
    let host = url.host_str().unwrap_or_default().to_owned();
    let port = url.port_or_known_default().unwrap_or(443);
    // A literal is taken as it is, in whatever brackets it stands.
    let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    match tokio::net::lookup_host((name, port)).await {
        Ok(addresses) => Ok(addresses.collect()),
        Err(source) => Err(WebError::Lookup { host, source }),
    }
}

/// One GET, sent to these addresses and no others: a name that answers differently a moment later changes nothing.
pub(super) async fn get(url: &Url, addresses: &[SocketAddr], accept: &str) -> Result<Answered, WebError> {
    let host = url.host_str().unwrap_or_default().to_owned();
    let failed = |error: reqwest::Error| WebError::Failed { host: host.clone(), cause: cause_of(&error) };
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .user_agent(AGENT)
        .timeout(LIMIT)
        .resolve_to_addrs(&host, addresses);
    if url.scheme() == "http" {
        // Reading the system's certificates takes 10 ms and some megabytes.
        builder = builder.tls_certs_only([]);
    }
    let client = builder.build().map_err(failed)?;
    let response = client.get(url.clone()).header(ACCEPT, accept).send().await.map_err(failed)?;
    if let Some(next) = elsewhere(url, &response) {
        return Ok(Answered::Elsewhere(next));
    }
    let status = response.status();
    if !status.is_success() {
        let (body, _) = read(response, REFUSAL).await.unwrap_or_default();
        let said = text::one_line(&text::without_controls(&String::from_utf8_lossy(&body)), 200);
        let said = if said.trim().is_empty() { String::new() } else { format!(" and says: {said}") };
        return Err(WebError::Status { url: url.to_string(), status, said });
    }
    let (kind, charset) = kind_of(&response);
    let (body, extent) = read(response, BODY).await.map_err(failed)?;
    Ok(Answered::Page(Page { kind, charset, body, extent }))
}

/// Runs a request under the time limit, until the call is cut.
pub(super) async fn in_time<T>(
    scope: &Scope,
    host: &str,
    work: impl Future<Output = Result<T, WebError>>,
) -> Result<T, WebError> {
    tokio::select! {
        biased;
        done = tokio::time::timeout(LIMIT, work) => done.unwrap_or_else(|_| Err(WebError::TimedOut { host: host.to_owned() })),
        () = scope.is_cut() => Err(WebError::Cut),
    }
}

/// Where a redirect leads. A status that asks for another method, or names no place, is no redirect.
fn elsewhere(url: &Url, response: &Response) -> Option<Url> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    url.join(location).ok()
}

/// The media type and the character set.
fn kind_of(response: &Response) -> (String, String) {
    let header = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let header = header.to_ascii_lowercase();
    let mut parts = header.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().to_owned();
    let charset = parts.find_map(|part| part.strip_prefix("charset=")).unwrap_or_default();
    (kind, charset.trim_matches('"').to_owned())
}

/// Reads as it comes, and no further than `limit`: what is packed small may unpack to anything.
async fn read(mut response: Response, limit: usize) -> Result<(Vec<u8>, Extent), reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = limit - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return Ok((body, Extent::Cut));
        }
    }
    Ok((body, Extent::Whole))
}

/// The innermost cause: the outer ones repeat the address.
fn cause_of(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer within {} s", LIMIT.as_secs());
    }
    text::causes(error).pop().unwrap_or_else(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::server::{Reply, Server};
    use super::*;

    #[tokio::test]
    async fn a_request_goes_to_the_address_that_was_checked_whatever_its_name_says_now() {
        let server = Server::start(vec![Reply::of_kind("/", "text/plain", "here")]);
        let url = Url::parse(&server.url("name.invalid", "/")).unwrap();
        let answered = get(&url, &[server.address()], "*/*").await.unwrap();
        assert!(matches!(answered, Answered::Page(page) if page.body == b"here"));
        let asked = server.asked().concat().to_ascii_lowercase();
        assert!(asked.contains("host: name.invalid") && asked.contains("user-agent: decode/"), "{asked}");
        assert!(!asked.contains("cookie") && !asked.contains("referer") && !asked.contains("authorization"), "{asked}");
    }

    #[tokio::test]
    async fn a_body_is_read_to_its_limit_and_no_further() {
        let server = Server::start(vec![Reply::of_kind("/", "Text/Plain; Charset=\"UTF-8\"", vec![b'x'; BODY + 5])]);
        let url = Url::parse(&server.url("127.0.0.1", "/")).unwrap();
        let Answered::Page(page) = get(&url, &[server.address()], "*/*").await.unwrap() else { panic!("a page") };
        assert_eq!((page.body.len(), page.extent), (BODY, Extent::Cut));
        assert_eq!((page.kind.as_str(), page.charset.as_str()), ("text/plain", "utf-8"));
    }
}
