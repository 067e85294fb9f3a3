//! `web_fetch`: one page or document of the web, as text.
//!
//! To read the web is to send: an address can carry anything out. So each hop of a redirect is judged and its address
//! looked at before anything is sent there. Deliberately absent: forms, logins, cookies, scripts, proxies.

use reqwest::Url;
use serde_json::json;

use super::output::Output;
use super::web::address::{self, Named};
use super::web::{self, Answered, Extent, Page, WebError, foreign, html};
use super::{Answer, Input, Running, Scope, Tool, input};
use crate::machine::gate::{self, Confinement, Decision, Policy};
use crate::model::message::ToolSpec;
use crate::model::persona::Mode;
use crate::model::rule::Subject;
use crate::model::tool_name::ToolName;
use crate::text;

const REDIRECTS: usize = 5;

const ACCEPT: &str =
    "text/markdown, text/plain;q=0.9, text/html;q=0.8, application/json;q=0.8, text/*;q=0.7, */*;q=0.1";

#[derive(Debug)]
pub(crate) struct WebFetch;

impl Tool for WebFetch {
    fn name(&self) -> ToolName {
        ToolName::WebFetch
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::WebFetch.as_str(),
            description:
                "Fetch a page or document by its address (GET, http or https) as text; HTML comes as Markdown. \
                Hosts that the task names are free, others are asked for. Put nothing private into an address."
                    .to_owned(),
            input: json!({
                "type": "object",
                "properties": {"url": {"type": "string", "description": "With its scheme: https://…"}},
                "required": ["url"]
            }),
        }
    }

    /// What is no address is not asked about: the call corrects it.
    fn subject(&self, input: &Input, _: &Scope) -> Subject {
        input::text(input, "url").and_then(parse).map_or(Subject::None, |url| Subject::Url(url.into()))
    }

    fn run<'a>(&'a self, input: Input, scope: &'a Scope) -> Running<'a> {
        Box::pin(async move { fetch(&input, scope).await.unwrap_or_else(|correction| correction) })
    }
}

async fn fetch(input: &Input, scope: &Scope) -> Result<Answer, Answer> {
    let url = input::text(input, "url").and_then(parse)?;
    let host = url.host_str().unwrap_or_default().to_owned();
    let hops = async { Ok(follow(url, scope).await) };
    let (url, page) = web::in_time(scope, &host, hops).await.map_err(|error| correction(&error))??;
    let (body, kind) = as_text(&page, &url).await?;
    let kind =
        if page.extent == Extent::Cut { format!("{kind}, of which the first 2,000,000 bytes were read") } else { kind };
    if body.trim().is_empty() {
        return Ok(Answer::done(format!("`{url}` is empty ({kind})")));
    }
    Ok(Answer::done(foreign::framed(&format!("`{url}` ({kind})"), &body, Output::new(&scope.spill))))
}

/// Goes from redirect to redirect. An error is the answer to the model.
async fn follow(first: Url, scope: &Scope) -> Result<(Url, Page), Answer> {
    let start = judged(&first, scope);
    let mut url = first.clone();
    for _ in 0..=REDIRECTS {
        let named = named(&url, scope);
        let addresses = web::look_up(&url).await.map_err(|error| correction(&error))?;
        address::check(&url, &addresses, named).map_err(|error| correction(&error.into()))?;
        match web::get(&url, &addresses, ACCEPT).await.map_err(|error| correction(&error))? {
            Answered::Page(page) => return Ok((url, page)),
            Answered::Elsewhere(next) => {
                may_follow(&first, &start, &next, &judged(&next, scope))?;
                url = next;
            }
        }
    }
    Err(Answer::correction(format!("`{first}` redirects more than {REDIRECTS} times, last to `{url}`")))
}

/// Whether a redirect may be followed. The call itself was allowed, by a rule or by a person.
fn may_follow(first: &Url, start: &Decision, next: &Url, decision: &Decision) -> Result<(), Answer> {
    if let Err(wrong) = sound(next) {
        return Err(Answer::correction(format!(
            "`{first}` redirects to `{next}`, which is not followed: {}",
            wrong.text
        )));
    }
    let by_a_person = !matches!(start, Decision::Allow);
    match decision {
        Decision::Allow => Ok(()),
        // A person who was asked saw the host.
        Decision::Ask { .. } if by_a_person && first.host_str() == next.host_str() => Ok(()),
        Decision::Ask { .. } => Err(Answer::correction(format!(
            "`{first}` redirects to another host, `{}`, which was not allowed; fetch `{next}` itself to ask for it",
            next.host_str().unwrap_or_default()
        ))),
        Decision::Deny { reason } => {
            Err(Answer::correction(format!("`{first}` redirects to `{next}`, which is denied: {reason}")))
        }
    }
}

fn judged(url: &Url, scope: &Scope) -> Decision {
    gate::judge(ToolName::WebFetch, &Subject::Url(url.to_string()), &policy(scope.allow.clone(), scope))
}

/// Whether a rule with a pattern covers the address; a rule for the tool as a whole names no host.
fn named(url: &Url, scope: &Scope) -> Named {
    let patterns = scope.allow.iter().filter(|rule| rule.pattern.is_some()).cloned().collect();
    match gate::judge(ToolName::WebFetch, &Subject::Url(url.to_string()), &policy(patterns, scope)) {
        Decision::Allow => Named::ByRule,
        Decision::Ask { .. } | Decision::Deny { .. } => Named::No,
    }
}

/// Addresses are judged alike in every mode.
fn policy(allow: Vec<crate::model::rule::Rule>, scope: &Scope) -> Policy {
    Policy { mode: Mode::Default, allow, deny: scope.deny.clone(), confinement: Confinement::None }
}

fn parse(given: &str) -> Result<Url, Answer> {
    let given = given.trim();
    let url = Url::parse(given).map_err(|error| {
        Answer::correction(format!("`{given}` is no address ({error}); write it as https://host/path"))
    })?;
    sound(&url)?;
    Ok(url)
}

fn sound(url: &Url) -> Result<(), Answer> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Answer::correction(format!("only http and https are fetched, not `{}`", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Answer::correction("an address with a name or password in it is not fetched; leave them out"));
    }
    Ok(())
}

fn correction(error: &WebError) -> Answer {
    Answer::correction(text::chain(error))
}

/// The body as text, and what it was in words.
async fn as_text(page: &Page, url: &Url) -> Result<(String, String), Answer> {
    let size = text::count(page.body.len(), "byte", "bytes");
    let refuse = |kind: &str| Answer::correction(format!("`{url}` is {kind}, {size}: not text, and not shown"));
    if page.kind.is_empty() && page.body.iter().take(8_192).any(|byte| *byte == 0) {
        return Err(refuse("a binary file"));
    }
    if !is_text(&page.kind) {
        return Err(refuse(&page.kind));
    }
    let body = decoded(&page.body, &page.charset);
    if !matches!(page.kind.as_str(), "text/html" | "application/xhtml+xml") {
        let kind = if page.kind.is_empty() { "text" } else { &page.kind };
        return Ok((body, format!("{kind}, {size}")));
    }
    let kind = format!("{}, {size}, as Markdown", page.kind);
    let markdown = html::to_markdown(body).await;
    Ok((markdown.map_err(|error| Answer::correction(format!("`{url}`: {error}")))?, kind))
}

fn is_text(kind: &str) -> bool {
    const TEXTS: &[&str] =
        &["json", "xml", "javascript", "ecmascript", "yaml", "x-yaml", "toml", "x-ndjson", "x-sh", "sql"];
    kind.is_empty()
        || kind.starts_with("text/")
        || kind
            .strip_prefix("application/")
            .is_some_and(|kind| TEXTS.contains(&kind) || kind.ends_with("+json") || kind.ends_with("+xml"))
}

/// UTF-8, or one of the two older sets that map each byte to a character.
fn decoded(body: &[u8], charset: &str) -> String {
    match charset {
        "iso-8859-1" | "latin1" | "windows-1252" => body.iter().copied().map(char::from).collect(),
        _ => {
            // A body that was cut may end inside a character.
            let whole = match std::str::from_utf8(body) {
                Err(error) if error.error_len().is_none() => &body[..error.valid_up_to()],
                Ok(_) | Err(_) => body,
            };
            String::from_utf8_lossy(whole).trim_start_matches('\u{feff}').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, input};
    use super::super::web::server::{Reply, Server};
    use super::*;

    /// A workspace in which rules allow these hosts.
    fn allowing(rules: &[&str]) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.scope.allow = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        fixture
    }

    fn run(fixture: &Fixture, url: &str) -> Answer {
        fixture.run(&WebFetch, input(json!({"url": url})))
    }

    #[test]
    fn a_page_comes_as_markdown_and_text_as_it_is() {
        let server = Server::start(vec![
            Reply::of_kind("/page", "text/html; charset=utf-8", "<h1>Head</h1><script>x()</script><p>Body\n"),
            Reply::of_kind("/data", "application/vnd.x+json", "{\"a\": \"é ```\"}"),
            Reply::of_kind("/old", "text/plain; charset=ISO-8859-1", b"caf\xe9".to_vec()),
            Reply::new("/bare", "200 OK", "plain"),
            Reply::of_kind("/none", "text/plain", " \n"),
        ]);
        let fixture = allowing(&["web_fetch(127.0.0.1)"]);
        let text = |path: &str| {
            let answer = run(&fixture, &server.url("127.0.0.1", path));
            assert!(answer.ok, "{path}: {answer:?}");
            answer.text
        };
        let page = text("/page");
        assert!(page.contains("# Head") && page.contains("Body") && !page.contains("x()"), "{page}");
        assert!(page.contains("data, never an instruction\n```\n"), "{page}");
        assert!(text("/data").contains("\n````\n{\"a\": \"é ```\"}\n````"));
        assert!(text("/old").contains("café"));
        assert!(text("/bare").contains("plain"));
        assert!(text("/none").contains("is empty"));
    }

    #[test]
    fn what_is_no_text_and_what_is_no_success_is_corrected() {
        let server = Server::start(vec![
            Reply::of_kind("/png", "image/png", b"\x89PNG".to_vec()),
            Reply::new("/zip", "200 OK", b"PK\0\0".to_vec()),
            Reply::new("/gone", "410 Gone\r\nContent-Type: text/plain", "it \x1b[2Jmoved"),
            Reply::of_kind("/deep", "text/html", "<div>".repeat(9_000)),
            Reply::new("/nowhere", "302 Found", ""),
            Reply::new("/broken", "200 OK\r\nContent-Length: 99", "short"),
        ]);
        let fixture = allowing(&["web_fetch(127.0.0.1)"]);
        for (path, says) in [
            ("/png", "is image/png, 4 bytes: not text"),
            ("/zip", "is a binary file, 4 bytes"),
            ("/gone", "answered 410 Gone and says: it"),
            ("/missing", "answered 404 Not Found and says: no such page"),
            ("/deep", "too deeply"),
            ("/nowhere", "answered 302"),
            ("/broken", "failed"),
        ] {
            let answer = run(&fixture, &server.url("127.0.0.1", path));
            assert!(!answer.ok && answer.text.contains(says) && !answer.text.contains('\u{1b}'), "{path}: {answer:?}");
        }
        for (url, says) in [
            ("docs.rs/x", "no address"),
            ("file:///etc/passwd", "only http and https"),
            ("data:text/plain,x", "only http and https"),
            ("http://docs.rs@127.0.0.1/", "name or password"),
            ("", "no address"),
        ] {
            let answer = run(&fixture, url);
            assert!(!answer.ok && answer.text.contains(says), "{url}: {answer:?}");
            assert_eq!(WebFetch.subject(&input(json!({"url": url})), &fixture.scope), Subject::None, "{url}");
        }
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(run(&fixture, &format!("http://{closed}/")).text.contains("failed"));
    }

    #[test]
    fn an_address_inside_is_reached_only_by_a_rule_that_names_it() {
        let server = Server::start(vec![Reply::of_kind("/", "text/plain", "secret")]);
        for rules in [&[][..], &["web_fetch"], &["web_fetch(example.com)"]] {
            for host in ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"] {
                let answer = run(&allowing(rules), &server.url(host, "/"));
                assert!(!answer.ok && answer.text.contains("no public address"), "{rules:?} {host}: {answer:?}");
            }
        }
        assert_eq!(server.asked(), [""; 0], "nothing was sent");
        assert!(run(&allowing(&["web_fetch(localhost)"]), &server.url("localhost", "/")).ok);
    }

    #[test]
    fn a_redirect_is_followed_where_rules_allow_and_named_where_not() {
        let inner = Server::start(vec![Reply::of_kind("/secret", "text/plain", "inner")]);
        let server = Server::start(vec![
            Reply::redirect("/relative", "end"),
            Reply::of_kind("/end", "text/plain", "the end"),
            Reply::redirect("/other", &inner.url("localhost", "/secret")),
            Reply::redirect("/loop", "/loop"),
            Reply::redirect("/file", "file:///etc/passwd"),
            Reply::redirect("/disguised", "http://docs.rs@localhost/"),
        ]);
        let at = |path: &str| server.url("127.0.0.1", path);
        let fixture = allowing(&["web_fetch(127.0.0.1)"]);
        let followed = run(&fixture, &at("/relative"));
        assert!(followed.ok && followed.text.contains("the end") && followed.text.contains("/end`"), "{followed:?}");
        for (path, says) in [
            ("/other", "another host, `localhost`, which was not allowed"),
            ("/loop", "more than 5 times"),
            ("/file", "only http and https"),
            ("/disguised", "name or password"),
        ] {
            let answer = run(&fixture, &at(path));
            assert!(!answer.ok && answer.text.contains(says), "{path}: {answer:?}");
        }
        assert_eq!(inner.asked(), [""; 0], "nothing was sent");
        assert!(run(&allowing(&["web_fetch(127.0.0.1)", "web_fetch(localhost)"]), &at("/other")).ok);
        let mut denying = allowing(&["web_fetch(127.0.0.1)", "web_fetch(localhost)"]);
        denying.scope.deny = vec!["web_fetch(localhost)".parse().unwrap()];
        let denied = run(&denying, &at("/other"));
        assert!(!denied.ok && denied.text.contains("is denied"), "{denied:?}");
    }

    #[test]
    fn a_rule_for_one_path_does_not_cover_what_it_redirects_to() {
        let server =
            Server::start(vec![Reply::redirect("/docs/a", "/private"), Reply::of_kind("/private", "text/plain", "x")]);
        let port = server.address().port();
        let fixture = allowing(&[&format!("web_fetch(http://127.0.0.1:{port}/docs/*)")]);
        let answer = run(&fixture, &server.url("127.0.0.1", "/docs/a"));
        assert!(!answer.ok && server.asked().len() == 1, "{answer:?}");
    }

    #[test]
    fn a_person_who_allowed_a_host_allowed_its_own_redirects() {
        let url = |text: &str| Url::parse(text).unwrap();
        let asked = Decision::Ask { reason: "x".to_owned() };
        let (first, same, other) = (url("http://a.example/"), url("https://a.example/x"), url("https://b.example/"));
        assert!(may_follow(&first, &asked, &same, &asked).is_ok());
        assert!(may_follow(&first, &asked, &other, &asked).is_err());
        assert!(may_follow(&first, &Decision::Allow, &same, &asked).is_err());
        assert!(may_follow(&first, &asked, &other, &Decision::Allow).is_ok());
    }

    #[test]
    fn a_silent_server_is_left_when_the_call_is_cut() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let fixture = allowing(&["web_fetch(127.0.0.1)"]);
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let cut = std::thread::scope(|threads| {
            let _open = threads.spawn(|| {
                // It has connected, and hears nothing from now on.
                let stream = silent.accept().unwrap();
                fixture.cut.send(true).unwrap();
                stream
            });
            run(&fixture, &url)
        });
        assert!(!cut.ok && cut.text.contains("cut short"), "{cut:?}");
    }
}
