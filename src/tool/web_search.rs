//! `web_search`: pages that a search engine of the user's choice finds.
//!
//! The engine speaks SearXNG's JSON. The user named it in settings, so that a search is not asked about; the words of the
//! query leave this machine for it. Without one the tool is absent. Deliberately absent: the pages themselves.

use std::fmt::Write as _;

use reqwest::Url;
use serde::Deserialize;
use serde_json::json;

use super::output::Output;
use super::web::{self, Answered, Page, foreign};
use super::{Answer, Input, Running, Scope, Tool, input};
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::tool_name::ToolName;
use crate::text;

const RESULTS: usize = 10;

/// Bytes of a query: a question, not a document.
const QUERY: usize = 500;

/// Bytes shown of what a page says of itself.
const SHOWN: usize = 400;

#[derive(Debug)]
pub(crate) struct WebSearch {
    endpoint: Url,
}

impl WebSearch {
    /// `None` if the endpoint is no address; settings have looked at it before.
    pub(crate) fn new(endpoint: &str) -> Option<Self> {
        Url::parse(endpoint)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .map(|endpoint| Self { endpoint })
    }
}

impl Tool for WebSearch {
    fn name(&self) -> ToolName {
        ToolName::WebSearch
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::WebSearch.as_str(),
            description:
                "Search the web: at most ten pages with title, address and a few words. The query leaves this \
                machine, so put nothing private into it; read a page with web_fetch."
                    .to_owned(),
            input: json!({
                "type": "object",
                "properties": {"query": {"type": "string"}},
                "required": ["query"]
            }),
        }
    }

    /// Free: the user named the endpoint. A rule can still deny the tool.
    fn subject(&self, _: &Input, _: &Scope) -> Subject {
        Subject::None
    }

    fn run<'a>(&'a self, input: Input, scope: &'a Scope) -> Running<'a> {
        Box::pin(async move { self.search(&input, scope).await.unwrap_or_else(|correction| correction) })
    }
}

impl WebSearch {
    async fn search(&self, input: &Input, scope: &Scope) -> Result<Answer, Answer> {
        let query = input::text(input, "query")?.trim();
        if query.is_empty() || query.len() > QUERY {
            return Err(Answer::correction(format!("a query has 1 to {QUERY} bytes; this one has {}", query.len())));
        }
        let mut url = self.endpoint.clone();
        url.query_pairs_mut().append_pair("q", query).append_pair("format", "json");
        let host = url.host_str().unwrap_or_default();
        let asked = async {
            let addresses = web::look_up(&url).await?;
            web::get(&url, &addresses, "application/json").await
        };
        match web::in_time(scope, host, asked).await {
            Ok(Answered::Page(page)) => answer(query, host, &page, scope),
            Ok(Answered::Elsewhere(next)) => Err(Answer::correction(format!(
                "the search engine sends us to `{next}`; `web_search.endpoint` in settings should name the place itself"
            ))),
            Err(error) => Err(Answer::correction(format!("the search failed: {}", text::chain(&error)))),
        }
    }
}

/// What SearXNG answers, as far as we need it.
#[derive(Debug, Deserialize)]
struct Found {
    results: Vec<Hit>,
}

#[derive(Debug, Deserialize)]
struct Hit {
    url: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    content: Option<String>,
}

fn answer(query: &str, host: &str, page: &Page, scope: &Scope) -> Result<Answer, Answer> {
    let found: Found = serde_json::from_slice(&page.body).map_err(|error| {
        Answer::correction(format!("the search engine `{host}` did not answer with results as JSON: {error}"))
    })?;
    if found.results.is_empty() {
        return Ok(Answer::done(format!("no page was found for `{query}`")));
    }
    let mut list = String::new();
    for (number, hit) in found.results.iter().take(RESULTS).enumerate() {
        let line = |text: &str| text::one_line(&text::without_controls(text), SHOWN);
        let title = line(hit.title.as_deref().unwrap_or_default());
        let _ = writeln!(list, "{}. {title}\n   {}", number + 1, line(&hit.url));
        if let Some(content) = hit.content.as_deref().filter(|content| !content.trim().is_empty()) {
            let _ = writeln!(list, "   {}", line(content));
        }
    }
    Ok(Answer::done(foreign::framed(&format!("found by {host} for `{query}`"), &list, Output::new(&scope.spill))))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, input};
    use super::super::web::server::{Reply, Server};
    use super::*;

    fn run(reply: Reply, query: &str) -> (Answer, Vec<String>) {
        let server = Server::start(vec![reply]);
        let tool = WebSearch::new(&server.url("localhost", "/search")).unwrap();
        let answer = Fixture::new().run(&tool, input(json!({"query": query})));
        (answer, server.asked())
    }

    fn results(number: usize) -> String {
        let hit = |n| json!({"title": format!("Title {n}"), "url": format!("https://e.example/{n}"), "content": "some\nwords", "engine": "x"});
        json!({"query": "q", "results": (1..=number).map(hit).collect::<Vec<_>>()}).to_string()
    }

    #[test]
    fn ten_results_come_with_title_address_and_words() {
        let (answer, asked) = run(Reply::of_kind("/search", "application/json", results(12)), "a b&c");
        assert!(answer.ok && answer.text.contains("1. Title 1\n   https://e.example/1\n   some words"), "{answer:?}");
        assert!(answer.text.contains("10. Title 10") && !answer.text.contains("11. Title"));
        assert!(answer.text.starts_with("found by localhost for `a b&c`; what stands"));
        assert!(asked[0].starts_with("GET /search?q=a+b%26c&format=json "), "{asked:?}");
    }

    #[test]
    fn what_is_no_answer_of_a_search_engine_is_corrected() {
        for (reply, says) in [
            (Reply::of_kind("/search", "text/html", "<html>"), "as JSON"),
            (Reply::of_kind("/search", "application/json", "{\"results\": 1}"), "as JSON"),
            (
                Reply::new("/search", "403 Forbidden", "format not enabled"),
                "403 Forbidden and says: format not enabled",
            ),
            (Reply::redirect("/search", "https://evil.example/"), "sends us to `https://evil.example/`"),
        ] {
            let (answer, _) = run(reply, "x");
            assert!(!answer.ok && answer.text.contains(says), "{answer:?}");
        }
        let (none, _) = run(Reply::of_kind("/search", "application/json", "{\"results\": []}"), "x");
        assert!(none.ok && none.text.contains("no page was found"));
    }

    #[test]
    fn a_query_that_is_a_document_is_not_sent() {
        for query in [String::new(), "  ".to_owned(), "x".repeat(QUERY + 1)] {
            let (answer, asked) = run(Reply::of_kind("/search", "application/json", results(1)), &query);
            assert!(!answer.ok && asked.is_empty(), "{answer:?}");
        }
    }
}
