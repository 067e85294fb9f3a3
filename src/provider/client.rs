//! The HTTP client of models: which proxy, which certificates, no redirects.
//!
//! A child's process has almost no environment of its own, so that the proxies are those of the caller's environment,
//! handed in. Deliberately absent: requests and answers.

use std::net::IpAddr;
use std::time::Duration;

/// Told to every server.
const USER_AGENT: &str = concat!("decode/", env!("CARGO_PKG_VERSION"));

/// The proxies an environment names, as curl reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Proxies {
    http: Option<String>,
    https: Option<String>,
    except: Option<String>,
}

impl Proxies {
    pub(crate) fn of(environment: &[(String, String)]) -> Self {
        let value = |name: &str| {
            let found = environment.iter().find(|(known, value)| known == name && !value.trim().is_empty());
            found.map(|(_, value)| value.trim().to_owned())
        };
        let either = |small: &str| value(small).or_else(|| value(&small.to_uppercase()));
        let all = either("all_proxy");
        Self {
            // Not by its name in capitals: a web server passes the header `Proxy:` of a stranger under that name.
            http: value("http_proxy").or_else(|| all.clone()),
            https: either("https_proxy").or(all),
            except: either("no_proxy"),
        }
    }

    /// The proxy for a base URL.
    fn toward(&self, base: &str) -> Option<&str> {
        let proxy = if base.starts_with("https:") { &self.https } else { &self.http };
        proxy.as_deref().filter(|_| !is_loopback(base))
    }
}

pub(super) fn build(base: &str, proxies: &Proxies, connect_timeout: Duration) -> Result<reqwest::Client, String> {
    let failed = |error: &dyn std::fmt::Display| format!("failed to build the HTTP client: {error}");
    let builder = reqwest::Client::builder().user_agent(USER_AGENT).connect_timeout(connect_timeout);
    // A redirect would take the key to another host.
    let mut builder = builder.redirect(reqwest::redirect::Policy::none()).no_proxy();
    if let Some(url) = proxies.toward(base) {
        let proxy = reqwest::Proxy::all(url).map_err(|_| format!("the proxy `{}` is no URL", without_password(url)))?;
        let except = proxies.except.as_deref().and_then(reqwest::NoProxy::from_string);
        builder = builder.proxy(proxy.no_proxy(except));
    }
    if base.starts_with("http://") {
        // Reading the system's certificates takes 10 ms and some megabytes; without TLS and redirects nothing asks them.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| failed(&error))
}

fn without_password(url: &str) -> &str {
    url.rsplit('@').next().unwrap_or(url)
}

fn is_loopback(base: &str) -> bool {
    let url = reqwest::Url::parse(base).ok();
    let host = url.as_ref().and_then(|url| url.host_str()).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(pairs: &[(&str, &str)]) -> Proxies {
        let pairs: Vec<(String, String)> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Proxies::of(&pairs)
    }

    #[test]
    fn a_proxy_is_found_by_the_names_that_people_set() {
        let https = "https://api.openai.com/v1/";
        assert_eq!(proxies(&[("HTTPS_PROXY", "http://a:1")]).toward(https), Some("http://a:1"));
        assert_eq!(proxies(&[("https_proxy", "b"), ("HTTPS_PROXY", "a")]).toward(https), Some("b"));
        assert_eq!(proxies(&[("ALL_PROXY", "c"), ("https_proxy", " ")]).toward(https), Some("c"));
        assert_eq!(proxies(&[("http_proxy", "d")]).toward(https), None);
        assert_eq!(proxies(&[("http_proxy", "d")]).toward("http://10.0.0.1/"), Some("d"));
        assert_eq!(proxies(&[("HTTP_PROXY", "d")]).toward("http://10.0.0.1/"), None);
    }

    #[test]
    fn loopback_is_never_asked_through_a_proxy() {
        let all = proxies(&[("all_proxy", "p")]);
        for base in ["http://localhost:1/v1/", "http://127.0.0.1:1/", "http://127.8.8.8/", "http://[::1]:1/v1/"] {
            assert_eq!(all.toward(base), None, "{base}");
        }
        for base in ["https://api.openai.com/v1/", "http://localhost.example/", "http://10.0.0.1/", "nonsense"] {
            assert_eq!(all.toward(base), Some("p"), "{base}");
        }
    }

    #[test]
    fn a_proxy_that_is_no_url_is_named_without_its_password() {
        let wrong = proxies(&[("all_proxy", "http://me:secret@[")]);
        let error = build("https://api.openai.com/v1/", &wrong, Duration::from_secs(1)).unwrap_err();
        assert_eq!(error, "the proxy `[` is no URL");
    }
}
