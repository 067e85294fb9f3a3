//! Rules about addresses: `web_fetch(docs.rs)`, `web_fetch(*.rust-lang.org)`, `web_fetch(https://example.com/docs/*)`.
//!
//! The address is taken apart by the parser of the HTTP client, so that what is judged is what is fetched.

use reqwest::Url;

use super::pattern::fits;

pub(super) fn allows(pattern: &str, url: &str) -> bool {
    // A name before the host (`https://docs.rs@evil.example/`) is there to deceive.
    Url::parse(url).is_ok_and(|url| url.username().is_empty() && url.password().is_none() && covers(pattern, &url))
}

/// What cannot be read as an address is denied by any deny rule.
pub(super) fn denies(pattern: &str, url: &str) -> bool {
    Url::parse(url).map_or(true, |url| covers(pattern, &url))
}

/// What a person needs to see: the host, or all of it where there is none.
pub(super) fn shown(url: &str) -> String {
    Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| url.to_owned())
}

fn covers(pattern: &str, url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let Some((scheme, rest)) = pattern.split_once("://") else {
        let pattern = pattern.strip_prefix("domain:").unwrap_or(pattern);
        return fits(&pattern.to_ascii_lowercase(), host);
    };
    let (wanted, path) = rest.split_once('/').map_or((rest, None), |(host, path)| (host, Some(path)));
    let place = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let address = format!("{}{}", url.path(), url.query().map(|query| format!("?{query}")).unwrap_or_default());
    fits(scheme, url.scheme())
        && fits(&wanted.to_ascii_lowercase(), &place)
        && path.is_none_or(|path| path.is_empty() || fits(&format!("/{path}"), &address))
}
