//! Hosts that a person names in a text, and which may therefore be fetched from without another question.
//!
//! Deliberately absent: names without a scheme. `main.rs` in a task is a file, although it could be a host.

use reqwest::Url;

/// A text that was piped in can name thousands; a person does not.
const HOSTS: usize = 50;

/// The hosts of the `http` and `https` addresses in a text, each once, in order.
pub(crate) fn hosts_in(text: &str) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    for address in addresses(text) {
        if hosts.len() == HOSTS {
            break;
        }
        if let Some(host) = host_of(address)
            && !hosts.contains(&host)
        {
            hosts.push(host);
        }
    }
    hosts
}

/// Everything from a scheme to the end of its word. Scanned once from left to right.
fn addresses(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"' | '\'' | '`' | '(' | ')' | '|' | ',')).filter(
        |word| {
            let lower = |scheme: &str| word.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
            lower("http://") || lower("https://")
        },
    )
}

/// The host, unless the address hides it behind a name, or it would mean more than itself as a pattern of a rule.
fn host_of(address: &str) -> Option<String> {
    let url = Url::parse(address.trim_end_matches(['.', ';', ':', '!', '?'])).ok()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    let host = url.host_str()?;
    let sound = url.username().is_empty() && url.password().is_none() && host.chars().all(plain);
    sound.then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_addresses_are_found_in_prose() {
        let text = "Compare https://docs.rs/serde and (http://LocalHost:8080/x), then <https://docs.rs/tokio>. \
            See `https://b\u{fc}cher.example/a`, [a](https://www.rust-lang.org/learn) and http://[::1]:3000.";
        let want = ["docs.rs", "localhost", "xn--bcher-kva.example", "www.rust-lang.org", "[::1]"];
        assert_eq!(hosts_in(text), want);
    }

    #[test]
    fn files_other_schemes_and_deceptive_addresses_name_no_host() {
        for text in [
            "Fix main.rs and docs.rs",
            "file:///etc/passwd ftp://example.com",
            "https://docs.rs@evil.example/x",
            "https://user:word@evil.example/x",
            "https://*/x https://*.com/ https://",
            "nohttps://evil.example",
            "",
        ] {
            assert_eq!(hosts_in(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn an_address_that_looks_like_another_counts_as_what_is_fetched() {
        assert_eq!(hosts_in("http://0x7f.1/ http://2130706433/"), ["127.0.0.1"]);
        assert_eq!(hosts_in("https://evil.example\\@docs.rs/"), ["evil.example"]);
    }

    #[test]
    fn a_flood_of_addresses_is_cut() {
        let text: String = (0..500).map(|n| format!("https://h{n}.example ")).collect();
        assert_eq!(hosts_in(&text).len(), HOSTS);
    }
}
