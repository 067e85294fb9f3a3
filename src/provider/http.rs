//! Models over HTTP: one request goes out, and its answer is told as it comes.
//!
//! A server is trusted with nothing: not with the form of its answer, its size, its pace, or that it ends. Deliberately
//! absent: retries of what failed, pacing, prices, where keys come from, and the dialects (`dialect.rs`).

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{StreamExt, stream};
use reqwest::Response;
use reqwest::header::{HeaderValue, LOCATION};
use tokio::time::Instant;

use super::answer::Answer;
use super::client::{self, Proxies};
use super::dialect::{self, Dialect};
use super::lesson::{self, Lesson};
use super::sse::Decoder;
use super::{EventStream, Provider, ProviderError, ProviderEvent, Request, failure, history};
use crate::model::provider::ProviderKind;
use crate::model::time::Timestamp;

/// The most that is read of a refusal.
const REFUSAL_LIMIT: usize = 64 * 1024;
/// The most that is read of an answer that is no stream.
const WHOLE_LIMIT: usize = 16 * 1024 * 1024;

/// Where an API is, unless the user says otherwise.
const fn usual_url(kind: ProviderKind) -> &'static str {
    match kind {
        ProviderKind::Anthropic => "https://api.anthropic.com/v1/",
        ProviderKind::OpenAi => "https://api.openai.com/v1/",
        ProviderKind::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
        ProviderKind::Ollama => "http://localhost:11434/v1/",
        ProviderKind::OpenRouter => "https://openrouter.ai/api/v1/",
    }
}

/// Where a model is reached. Not `Debug`: it holds the key.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) kind: ProviderKind,
    pub(crate) base_url: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) proxies: Proxies,
    pub(crate) connect_timeout: Duration,
    /// Until the head of the response.
    pub(crate) header_timeout: Duration,
    /// Between two reads of its body.
    pub(crate) read_timeout: Duration,
    /// Between two events that say something: a server may ping for ever.
    pub(crate) meaning_timeout: Duration,
}

impl Endpoint {
    pub(crate) fn new(kind: ProviderKind) -> Self {
        Self {
            kind,
            base_url: None,
            key: None,
            proxies: Proxies::default(),
            connect_timeout: Duration::from_secs(20),
            header_timeout: Duration::from_mins(1),
            read_timeout: Duration::from_mins(2),
            meaning_timeout: Duration::from_mins(5),
        }
    }

    /// The base URL with a slash at its end.
    fn base(&self) -> String {
        let mut base = self.base_url.as_deref().unwrap_or(usual_url(self.kind)).trim().trim_end_matches('/').to_owned();
        // These are named without the version by their own tools.
        let version = match self.kind {
            ProviderKind::Anthropic | ProviderKind::Ollama => "/v1",
            ProviderKind::Gemini if !base.ends_with("/v1") => "/v1beta",
            ProviderKind::Gemini | ProviderKind::OpenAi | ProviderKind::OpenRouter => "",
        };
        if !base.ends_with(version) {
            base.push_str(version);
        }
        base.push('/');
        base
    }

    /// The key, without which only a server of the user's own is asked.
    fn key(&self) -> Result<Option<&str>, ProviderError> {
        let key = self.key.as_deref().map(str::trim).filter(|key| !key.is_empty());
        let keyless = self.base_url.is_some() || self.kind == ProviderKind::Ollama;
        if key.is_none() && !keyless {
            return Err(ProviderError::Missing { detail: format!("there is no key for {}", self.kind.name()) });
        }
        Ok(key)
    }
}

/// A provider over HTTP. Building one costs nothing; the client is made at the first request.
pub(crate) struct Http(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    client: OnceLock<Result<reqwest::Client, String>>,
    lessons: Mutex<BTreeSet<Lesson>>,
}

impl Http {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self(Arc::new(Inner { endpoint, client: OnceLock::new(), lessons: Mutex::default() }))
    }
}

impl Provider for Http {
    fn stream(&self, request: Request) -> EventStream {
        let inner = Arc::clone(&self.0);
        let asked = async move {
            match inner.ask(&request).await {
                Ok(reading) => stream::unfold(reading, Reading::next).boxed(),
                Err(error) => stream::iter([Err(error)]).boxed(),
            }
        };
        Box::pin(stream::once(asked).flatten())
    }
}

impl Inner {
    /// Asks until the server answers or refuses for a reason that teaches nothing new.
    async fn ask(&self, request: &Request) -> Result<Reading, ProviderError> {
        loop {
            let lessons = self.lessons.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let response = self.send(request, &lessons).await?;
            if response.status().is_success() {
                return Ok(self.reading(response, request));
            }
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let body = self.refusal(response).await;
            let Some(lesson) = lesson::of(status, &body, request, &lessons) else {
                let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
                if let Some(place) = header(LOCATION.as_str()).filter(|_| (300..400).contains(&status)) {
                    let detail = format!("the server is at `{place}` now (status {status}); no redirect is followed");
                    return Err(ProviderError::Invalid { detail });
                }
                return Err(failure::of_response(status, header, &body, now()));
            };
            self.lessons.lock().unwrap_or_else(PoisonError::into_inner).insert(lesson);
        }
    }

    async fn send(&self, request: &Request, lessons: &BTreeSet<Lesson>) -> Result<Response, ProviderError> {
        let endpoint = &self.endpoint;
        let (base, dialect) = (endpoint.base(), Dialect::of(endpoint.kind));
        let key = endpoint.key()?;
        let client =
            self.client.get_or_init(|| client::build(&base, &endpoint.proxies, endpoint.connect_timeout)).as_ref();
        let client = client.map_err(|detail| ProviderError::Missing { detail: detail.clone() })?;
        let body = dialect::body(endpoint.kind, request, lessons).to_string();
        let mut post = client.post(dialect.url(&base, &request.model)).body(body);
        post = post.header("content-type", "application/json").header("accept", "text/event-stream");
        for (name, value) in dialect.headers(key) {
            let mut value = HeaderValue::from_str(&value).map_err(|_| ProviderError::Refused {
                detail: "the key holds characters that no key has".to_owned(),
            })?;
            value.set_sensitive(true);
            post = post.header(name, value);
        }
        match tokio::time::timeout(endpoint.header_timeout, post.send()).await {
            Ok(sent) => sent.map_err(|error| failure::of_transport(&error)),
            Err(_) => Err(ProviderError::Unreachable {
                detail: format!("no answer began within {} s", endpoint.header_timeout.as_secs_f64()),
            }),
        }
    }

    /// What a refusal says, as far as it comes in time.
    async fn refusal(&self, mut response: Response) -> String {
        let mut body = Vec::new();
        let read = async {
            while body.len() < REFUSAL_LIMIT
                && let Ok(Some(bytes)) = response.chunk().await
            {
                body.extend_from_slice(&bytes);
            }
        };
        // Late words are no words: the status is enough to decide by.
        let _ = tokio::time::timeout(self.endpoint.header_timeout, read).await;
        body.truncate(REFUSAL_LIMIT);
        String::from_utf8_lossy(&body).into_owned()
    }

    fn reading(&self, response: Response, request: &Request) -> Reading {
        Reading {
            response: Some(response),
            body: Body::Unknown,
            answer: Answer::new(Dialect::of(self.endpoint.kind), &request.model),
            ready: VecDeque::new(),
            taken: history::call_ids(&request.messages),
            asked: history::bytes_of(request),
            read_timeout: self.endpoint.read_timeout,
            meaning_timeout: self.endpoint.meaning_timeout,
            meant_at: Instant::now(),
        }
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(since.as_millis() as i64)
}

/// What a body turned out to be, which its first byte tells and its headers often do not.
enum Body {
    Unknown,
    Events(Decoder),
    /// One JSON object: an error, or the answer of a server that knows no streams.
    Whole(Vec<u8>),
    /// A page of HTML: whoever answered is no model.
    Page(Vec<u8>),
}

type Told = Result<ProviderEvent, ProviderError>;

/// One answer while it is read: ends after `Finished` or the first error.
struct Reading {
    /// `None` once the answer is over; the connection is let go with it.
    response: Option<Response>,
    body: Body,
    answer: Answer,
    ready: VecDeque<Told>,
    /// Call ids that the conversation holds.
    taken: HashSet<String>,
    asked: usize,
    read_timeout: Duration,
    meaning_timeout: Duration,
    meant_at: Instant,
}

impl Reading {
    async fn next(mut self) -> Option<(Told, Self)> {
        loop {
            if let Some(told) = self.ready.pop_front() {
                return Some((told, self));
            }
            let response = self.response.as_mut()?;
            let (begun, meant_by) = (Instant::now(), self.meant_at + self.meaning_timeout);
            let until = meant_by.min(begun + self.read_timeout);
            let read = match tokio::time::timeout_at(until, response.chunk()).await {
                Ok(Ok(Some(bytes))) => self.read(&bytes),
                Ok(Ok(None)) => self.read_end(),
                Ok(Err(error)) => Err(failure::of_cut(&error)),
                Err(_) if until < meant_by => Err(interrupted(format!("nothing came for {:?}", self.read_timeout))),
                Err(_) => Err(self.meaningless()),
            };
            // Bytes that always come and never mean anything leave no time-out to run.
            let over = Instant::now() >= self.meant_at + self.meaning_timeout;
            let read = if over && read.is_ok() && self.response.is_some() && self.ready.is_empty() {
                Err(self.meaningless())
            } else {
                read
            };
            if let Err(error) = read {
                self.ready.push_back(Err(error));
                self.response = None;
            }
        }
    }

    fn meaningless(&self) -> ProviderError {
        interrupted(format!("nothing that says anything came for {:?}", self.meaning_timeout))
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), ProviderError> {
        if let Body::Unknown = self.body {
            self.body = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => return Ok(()),
                Some(b'{' | b'[') => Body::Whole(Vec::new()),
                Some(b'<') => Body::Page(Vec::new()),
                Some(_) => Body::Events(Decoder::default()),
            };
        }
        match &mut self.body {
            Body::Unknown => Ok(()),
            Body::Events(decoder) => {
                let events = decoder.hear(bytes).map_err(|error| interrupted(error.to_string()))?;
                self.hear(&events)
            }
            Body::Whole(whole) => {
                if whole.len() + bytes.len() > WHOLE_LIMIT {
                    return Err(interrupted(format!("the answer is larger than {} MB", WHOLE_LIMIT / 1024 / 1024)));
                }
                whole.extend_from_slice(bytes);
                Ok(())
            }
            Body::Page(page) => {
                page.extend_from_slice(bytes);
                if page.len() > REFUSAL_LIMIT { Err(no_model(page)) } else { Ok(()) }
            }
        }
    }

    fn hear(&mut self, events: &[String]) -> Result<(), ProviderError> {
        for event in events {
            let weight = self.answer.weight();
            let told = self.answer.hear(event)?;
            self.ready.extend(told.into_iter().map(Ok));
            if self.answer.whole {
                self.finish();
                return Ok(());
            }
            if self.answer.weight() > weight {
                self.meant_at = Instant::now();
            }
        }
        Ok(())
    }

    /// The body has ended as it should.
    fn read_end(&mut self) -> Result<(), ProviderError> {
        match &self.body {
            Body::Unknown => return Err(interrupted("the answer is empty".to_owned())),
            Body::Events(_) => self.answer.hear_end(),
            Body::Whole(whole) => {
                let whole = serde_json::from_slice(whole)
                    .map_err(|error| interrupted(format!("the answer is not JSON: {error}")))?;
                let told = self.answer.hear_body(&whole)?;
                self.ready.extend(told.into_iter().map(Ok));
            }
            Body::Page(page) => return Err(no_model(page)),
        }
        if !self.answer.whole {
            return Err(interrupted("the stream ended before its last event".to_owned()));
        }
        self.finish();
        Ok(())
    }

    fn finish(&mut self) {
        let answer = std::mem::replace(&mut self.answer, Answer::new(Dialect::OpenAi, ""));
        self.ready.extend(answer.finish(&self.taken, self.asked).into_iter().map(Ok));
        self.response = None;
    }
}

fn interrupted(detail: String) -> ProviderError {
    ProviderError::Interrupted { detail }
}

/// A page with status 200: of a proxy that wants a login, or of another server.
fn no_model(page: &[u8]) -> ProviderError {
    let words = failure::words_of_page(&String::from_utf8_lossy(page));
    ProviderError::Unreachable { detail: format!("a page of HTML came in place of an answer: {words}") }
}

#[cfg(test)]
#[path = "../../tests/it/model_server.rs"]
mod model_server;

#[cfg(test)]
mod tests;
