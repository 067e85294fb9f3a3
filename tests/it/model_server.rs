//! A scripted model on loopback: the exact bytes and pauses a test asks for, in three dialects.
//!
//! Speaks OpenAI Chat Completions (`POST …/chat/completions`), Anthropic Messages (`POST …/messages`) and Gemini
//! (`POST …:streamGenerateContent`), always as a stream of server-sent events. Included by integration tests, benches and, by path, unit tests of the crate; so it
//! uses nothing but the standard library and `serde_json`. Deliberately absent: TLS, and any knowledge of decode.
#![allow(dead_code, reason = "each test binary that includes this file uses another part of it")]

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

// By path, because this file is itself included by path.
#[path = "model_server/dialects.rs"]
mod dialects;

use dialects::{Dialect, event_bytes, events_of, fault_of};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
    pub(crate) at: Instant,
}

impl Recorded {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// What the user says before the first answer, by which rules are chosen.
    pub(crate) fn first_user_text(&self) -> String {
        let messages = self.body["messages"].as_array().or(self.body["contents"].as_array()).into_iter().flatten();
        let told = messages.skip_while(|message| message["role"] != "user");
        let told = told.take_while(|message| message["role"] == "user");
        let text = |message: &Value| text_of(message.get("content").or(message.get("parts")).unwrap_or(&Value::Null));
        told.map(text).collect::<Vec<_>>().join("\n")
    }
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// How tool calls of the OpenAI dialect are numbered; servers differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Indexes {
    #[default]
    Right,
    Missing,
    AllZero,
    /// 5, 9, 13, …
    Odd,
    /// One that a client must not use as the length of anything.
    Bomb,
}

/// Which fragments carry the id of their call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Ids {
    #[default]
    First,
    Every,
    Never,
}

/// One tool call of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Call {
    pub(crate) fn new(id: &str, name: &str, arguments: &Value) -> Self {
        Self::raw(id, name, &arguments.to_string())
    }

    /// Arguments as any text, so that they can be broken.
    pub(crate) fn raw(id: &str, name: &str, arguments: &str) -> Self {
        Self { id: id.into(), name: name.into(), arguments: arguments.into() }
    }
}

/// Tokens as the server reports them; `input` includes `cached`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tokens {
    pub(crate) input: u64,
    pub(crate) cached: u64,
    pub(crate) output: u64,
}

#[derive(Debug, Clone)]
enum Content {
    Answer {
        text: String,
        calls: Vec<Call>,
    },
    Status {
        code: u16,
        headers: Vec<(String, String)>,
        body: String,
    },
    /// Written as they are, one HTTP chunk each.
    Raw(Vec<Vec<u8>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Whole,
    /// The body ends as it should, but what ends an answer never came.
    WithoutLastEvent,
    /// The socket closes after so many events.
    CutAfter(usize),
    /// After the last event the socket stays open and nothing comes.
    Hang,
    /// In place of what ends an answer come comments, for ever.
    Ping,
}

/// What one request is answered with.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own that a test may set")]
pub(crate) struct Step {
    content: Content,
    ending: Ending,
    length: bool,
    /// In place of the usual one.
    reason: Option<String>,
    error: Option<(String, String)>,
    /// What is thought before the answer, and the proof of it.
    thinking: Option<(String, String)>,
    tokens: Option<Tokens>,
    indexes: Indexes,
    ids: Ids,
    fragments: usize,
    interleaved: bool,
    one_byte_chunks: bool,
    crlf: bool,
    delay: Duration,
    pause: Duration,
    gated: bool,
}

impl Step {
    fn of(content: Content) -> Self {
        Self {
            content,
            ending: Ending::Whole,
            length: false,
            reason: None,
            error: None,
            thinking: None,
            tokens: Some(Tokens { input: 10, cached: 0, output: 5 }),
            indexes: Indexes::Right,
            ids: Ids::First,
            fragments: 2,
            interleaved: false,
            one_byte_chunks: false,
            crlf: false,
            delay: Duration::ZERO,
            pause: Duration::ZERO,
            gated: false,
        }
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::of(Content::Answer { text: text.into(), calls: Vec::new() })
    }

    /// A whole answer without text and calls.
    pub(crate) fn empty() -> Self {
        Self::text("")
    }

    pub(crate) fn calls(calls: Vec<Call>) -> Self {
        Self::of(Content::Answer { text: String::new(), calls })
    }

    pub(crate) fn call(id: &str, name: &str, arguments: &Value) -> Self {
        Self::calls(vec![Call::new(id, name, arguments)])
    }

    /// An HTTP error with an empty body, unless [`Step::body`] gives one.
    pub(crate) fn status(code: u16) -> Self {
        Self::of(Content::Status { code, headers: Vec::new(), body: String::new() })
    }

    /// Body bytes of a 200 stream, each piece an HTTP chunk of its own.
    pub(crate) fn raw(chunks: Vec<Vec<u8>>) -> Self {
        Self::of(Content::Raw(chunks))
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        if let Content::Status { headers, .. } = &mut self.content {
            headers.push((name.into(), value.into()));
        }
        self
    }

    pub(crate) fn body(mut self, text: &str) -> Self {
        if let Content::Status { body, .. } = &mut self.content {
            *body = text.into();
        }
        self
    }

    /// Text before the calls.
    pub(crate) fn saying(mut self, said: &str) -> Self {
        if let Content::Answer { text, .. } = &mut self.content {
            *text = said.into();
        }
        self
    }

    pub(crate) fn cut_after(mut self, events: usize) -> Self {
        self.ending = Ending::CutAfter(events);
        self
    }

    /// After its events the answer neither ends nor goes on.
    pub(crate) fn then_hang(mut self) -> Self {
        self.ending = Ending::Hang;
        self
    }

    /// The answer neither ends nor goes on, but the server says that it lives.
    pub(crate) fn then_ping(mut self) -> Self {
        self.ending = Ending::Ping;
        self
    }

    /// The body ends as it should, but neither the reason why nor the dialect's end mark came.
    pub(crate) fn without_last_event(mut self) -> Self {
        self.ending = Ending::WithoutLastEvent;
        self
    }

    /// The stream goes on with an error event of this type in place of its end.
    pub(crate) fn then_error(mut self, kind: &str, message: &str) -> Self {
        self.error = Some((kind.into(), message.into()));
        self
    }

    /// The stop reason says that `max_tokens` cut the answer.
    pub(crate) fn stopped_by_length(mut self) -> Self {
        self.length = true;
        self
    }

    /// Any reason for the answer's end, by the dialect's own name.
    pub(crate) fn reason(mut self, reason: &str) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Thinking before the answer, with the proof that a client must send back.
    pub(crate) fn thinking(mut self, text: &str, signature: &str) -> Self {
        self.thinking = Some((text.into(), signature.into()));
        self
    }

    pub(crate) fn tokens(mut self, input: u64, cached: u64, output: u64) -> Self {
        self.tokens = Some(Tokens { input, cached, output });
        self
    }

    pub(crate) fn without_usage(mut self) -> Self {
        self.tokens = None;
        self
    }

    pub(crate) fn indexes(mut self, indexes: Indexes) -> Self {
        self.indexes = indexes;
        self
    }

    pub(crate) fn ids(mut self, ids: Ids) -> Self {
        self.ids = ids;
        self
    }

    /// In how many pieces the arguments of a call come.
    pub(crate) fn fragments(mut self, pieces: usize) -> Self {
        self.fragments = pieces.max(1);
        self
    }

    /// Pieces of all calls in turn (OpenAI dialect only).
    pub(crate) fn interleaved(mut self) -> Self {
        self.interleaved = true;
        self
    }

    /// One byte an HTTP chunk: characters and line ends are cut.
    pub(crate) fn one_byte_chunks(mut self) -> Self {
        self.one_byte_chunks = true;
        self
    }

    /// Lines end in CR LF.
    pub(crate) fn crlf(mut self) -> Self {
        self.crlf = true;
        self
    }

    /// A wait before the head of the response.
    pub(crate) fn delay_ms(mut self, millis: u64) -> Self {
        self.delay = Duration::from_millis(millis);
        self
    }

    /// A wait before each event.
    pub(crate) fn pause_ms(mut self, millis: u64) -> Self {
        self.pause = Duration::from_millis(millis);
        self
    }

    /// Not answered before [`ModelServer::release`].
    pub(crate) fn gated(mut self) -> Self {
        self.gated = true;
        self
    }
}

type Answerer = dyn Fn(&Recorded, usize) -> Step + Send + Sync;

/// Which step answers which request.
///
/// A conversation is the rule it fits together with its first user message; its n-th request gets the n-th step, and
/// the last step goes on answering.
#[derive(Default)]
pub(crate) struct Script {
    rules: Vec<(String, Arc<Answerer>)>,
    otherwise: Option<Arc<Answerer>>,
    strict: bool,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// One conversation for all.
    pub(crate) fn steps(steps: Vec<Step>) -> Self {
        Self::new().otherwise(steps)
    }

    /// A function of the request and of how many this conversation made before.
    pub(crate) fn function(answer: impl Fn(&Recorded, usize) -> Step + Send + Sync + 'static) -> Self {
        Self { otherwise: Some(Arc::new(answer)), ..Self::default() }
    }

    /// Steps for conversations whose first user message contains `part`. The first rule that fits is taken.
    pub(crate) fn on(mut self, part: &str, steps: Vec<Step>) -> Self {
        self.rules.push((part.into(), in_order(steps)));
        self
    }

    pub(crate) fn otherwise(mut self, steps: Vec<Step>) -> Self {
        self.otherwise = Some(in_order(steps));
        self
    }

    /// A history that a strict provider would refuse is answered with 400.
    pub(crate) fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    fn answerer(&self, first: &str) -> Option<(usize, Arc<Answerer>)> {
        let rule = self.rules.iter().position(|(part, _)| first.contains(part.as_str()));
        match rule {
            Some(number) => Some((number, Arc::clone(&self.rules[number].1))),
            None => self.otherwise.clone().map(|answerer| (self.rules.len(), answerer)),
        }
    }
}

fn in_order(steps: Vec<Step>) -> Arc<Answerer> {
    assert!(!steps.is_empty(), "a rule needs a step");
    Arc::new(move |_, number| steps[number.min(steps.len() - 1)].clone())
}

#[derive(Default)]
struct State {
    requests: Vec<Recorded>,
    made: HashMap<(usize, String), usize>,
    released: bool,
    stopping: bool,
    open: Vec<TcpStream>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    script: Script,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A test that failed in another thread must not hide its own message behind a poisoned lock.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits until `holds`, the server stops, or the time is up; says whether it holds.
    fn wait(&self, limit: Option<Duration>, holds: impl Fn(&State) -> bool) -> bool {
        let end = limit.map(|limit| Instant::now() + limit);
        let mut state = self.state();
        while !holds(&state) && !state.stopping {
            let left = end.map_or(Duration::from_hours(1), |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        holds(&state)
    }

    /// A pause that ends early when the server stops.
    fn pause(&self, time: Duration) {
        if !time.is_zero() {
            self.wait(Some(time), |_| false);
        }
    }
}

/// A running server; stops and joins its threads when dropped.
pub(crate) struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl ModelServer {
    pub(crate) fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared { script, state: Mutex::default(), changed: Condvar::new() });
        let acceptor = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || accept(&listener, &shared))
        };
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// A base URL for either dialect, without a slash at its end.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.shared.state().requests.clone()
    }

    /// Opens the gate for every gated step, now and later.
    pub(crate) fn release(&self) {
        self.shared.state().released = true;
        self.shared.changed.notify_all();
    }

    /// Blocks until so many requests have arrived; false when the time is up first.
    pub(crate) fn wait_for_requests(&self, number: usize, limit: Duration) -> bool {
        self.shared.wait(Some(limit), |state| state.requests.len() >= number)
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        let workers = {
            let mut state = self.shared.state();
            state.stopping = true;
            for stream in state.open.drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
            std::mem::take(&mut state.workers)
        };
        self.shared.changed.notify_all();
        // Wakes the acceptor, which then sees that it shall stop.
        let _ = TcpStream::connect(self.address);
        for thread in self.acceptor.take().into_iter().chain(workers) {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        let mut state = shared.state();
        if state.stopping {
            return;
        }
        let Ok(stream) = stream else { continue };
        let _ = stream.set_nodelay(true);
        if let Ok(handle) = stream.try_clone() {
            state.open.push(handle);
        }
        let shared = Arc::clone(shared);
        state.workers.push(std::thread::spawn(move || {
            // An error is a client that went away or a socket we closed ourselves: the end of this connection.
            let _ = serve(&stream, &shared);
            let _ = stream.shutdown(Shutdown::Both);
        }));
    }
}

/// Answers the requests of one connection.
fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = read_request(&mut reader)? {
        let step = choose(shared, &request);
        if step.gated {
            shared.wait(None, |state| state.released);
        }
        shared.pause(step.delay);
        if !respond(stream, shared, &step, Dialect::of(&request.path))? {
            return Ok(());
        }
    }
    Ok(())
}

fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Recorded>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None => break,
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok(Some(Recorded { path, headers, body, at: Instant::now() }))
}

fn choose(shared: &Shared, request: &Recorded) -> Step {
    let first = request.first_user_text();
    let found = shared.script.answerer(&first);
    let mut state = shared.state();
    state.requests.push(request.clone());
    shared.changed.notify_all();
    if shared.script.strict
        && let Some(fault) = fault_of(request)
    {
        return refusal(&fault);
    }
    let Some((rule, answerer)) = found else {
        return refusal(&format!("the script has no rule for `{first}`"));
    };
    let made = state.made.entry((rule, first)).or_default();
    let number = *made;
    *made += 1;
    drop(state);
    answerer(request, number)
}

fn refusal(message: &str) -> Step {
    let body = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
    Step::status(400).body(&body.to_string())
}

/// Writes the response; false when the connection must not be used again.
fn respond(mut stream: &TcpStream, shared: &Shared, step: &Step, dialect: Dialect) -> io::Result<bool> {
    if let Content::Status { code, headers, body } = &step.content {
        // One byte more than comes is a body that never ends.
        let length = body.len() + usize::from(step.ending == Ending::Hang);
        let mut head = format!("HTTP/1.1 {code} Scripted\r\ncontent-length: {length}\r\n");
        for (name, value) in headers {
            head = format!("{head}{name}: {value}\r\n");
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
        if step.ending == Ending::Hang {
            shared.wait(None, |_| false);
        }
        return Ok(step.ending != Ending::Hang);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
    let mut events = match &step.content {
        Content::Raw(chunks) => chunks.clone(),
        _ => events_of(step, dialect).into_iter().map(|event| event_bytes(&event, step.crlf)).collect(),
    };
    if let Ending::CutAfter(number) = step.ending {
        events.truncate(number);
    }
    for event in events {
        shared.pause(step.pause);
        let size = if step.one_byte_chunks { 1 } else { event.len().max(1) };
        for piece in event.chunks(size) {
            stream.write_all(&[format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat())?;
        }
    }
    match step.ending {
        Ending::CutAfter(_) => return Ok(false),
        Ending::Hang => {
            shared.wait(None, |_| false);
            return Ok(false);
        }
        Ending::Ping => loop {
            // Ends by the error that writing to a client is that has left.
            stream.write_all(b"8\r\n: ping\n\n\r\n")?;
            shared.pause(Duration::from_millis(10));
            if shared.state().stopping {
                return Ok(false);
            }
        },
        Ending::Whole | Ending::WithoutLastEvent => {}
    }
    stream.write_all(b"0\r\n\r\n")?;
    Ok(true)
}
