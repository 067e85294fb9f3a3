//! Questions put to small repositories, through a tiny executor of the three tools.

use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use serde_json::{Value, json};

use super::Explorer;
use super::plan::next_turn;
use crate::model::message::{
    AssistantMessage, Message, StopReason, ToolCall, ToolInput, ToolResult, ToolSpec, UserMessage,
};
use crate::provider::{Provider, ProviderEvent, Request};

/// A conversation with the explorer about a directory.
struct Talk {
    root: PathBuf,
    request: Request,
    turns: usize,
}

impl Talk {
    fn about(root: &Path, question: &str) -> Self {
        let tool = |name| ToolSpec { name, description: String::new(), input: json!({}) };
        let tools = ["read", "glob", "grep"].map(tool).to_vec();
        let request =
            Request { model: "explorer".into(), system: String::new(), messages: Vec::new(), tools, max_tokens: 4096 };
        let mut talk = Self { root: root.to_owned(), request, turns: 0 };
        talk.say("task", question);
        talk
    }

    fn say(&mut self, by: &str, text: &str) {
        self.request.messages.push(Message::User(UserMessage { text: text.into(), by: by.into() }));
    }

    /// One request and the answers of its calls.
    fn turn(&mut self) -> AssistantMessage {
        let turn = next_turn(&self.request);
        self.turns += 1;
        self.request.messages.push(Message::Assistant(turn.clone()));
        for call in &turn.calls {
            let (ok, output) = answer(&self.root, call);
            let result = ToolResult { call: call.id.clone(), name: call.name.clone(), ok, output, images: Vec::new() };
            self.request.messages.push(Message::Tool(result));
        }
        turn
    }

    fn report(&mut self) -> String {
        for _ in 0..12 {
            let turn = self.turn();
            assert!(!turn.text.trim().is_empty(), "a person watches, so every turn says something");
            if turn.calls.is_empty() {
                assert_eq!(turn.stop, StopReason::End);
                return turn.text;
            }
            assert_eq!(turn.stop, StopReason::ToolCalls);
        }
        panic!("the search does not end");
    }
}

/// The tools' contracts in the smallest form, sorted and without ignored files.
fn answer(root: &Path, call: &ToolCall) -> (bool, String) {
    let ToolInput::Sound(input) = &call.input else { return (false, "no object".into()) };
    let text = |key: &str| input.get(key).and_then(Value::as_str);
    let lines: Vec<String> = match call.name.as_str() {
        "glob" => {
            let pattern = text("pattern").unwrap();
            let glob = match globset::GlobBuilder::new(pattern).literal_separator(true).build() {
                Ok(glob) => glob.compile_matcher(),
                Err(error) => return (false, error.to_string()),
            };
            files(root).into_iter().filter(|path| glob.is_match(path)).collect()
        }
        "grep" => {
            let pattern = match regex::Regex::new(text("pattern").unwrap()) {
                Ok(pattern) => pattern,
                Err(error) => return (false, error.to_string()),
            };
            let within = text("path").unwrap_or_default();
            let mut found = Vec::new();
            for path in files(root).into_iter().filter(|path| path.starts_with(within)) {
                let Ok(content) = std::fs::read_to_string(root.join(&path)) else { continue };
                let hits = content.lines().enumerate().filter(|(_, line)| pattern.is_match(line));
                found.extend(hits.map(|(i, line)| format!("{path}:{}:{line}", i + 1)));
            }
            found
        }
        "read" => {
            let Ok(content) = std::fs::read_to_string(root.join(text("path").unwrap())) else {
                return (false, "missing".into());
            };
            let number = |key: &str, usual| input.get(key).and_then(Value::as_u64).map_or(usual, |n| n as usize);
            let lines = content.lines().enumerate().skip(number("offset", 1) - 1).take(number("limit", 2000));
            lines.map(|(i, line)| format!("{}\t{line}", i + 1)).collect()
        }
        other => return (false, format!("no tool `{other}`")),
    };
    if lines.is_empty() {
        return (false, "nothing matches".into());
    }
    let mut output = String::new();
    for line in lines.iter().take(2000) {
        if output.len() + line.len() > 50_000 {
            break;
        }
        output.push_str(line);
        output.push('\n');
    }
    (true, output)
}

fn files(root: &Path) -> Vec<String> {
    let walk = ignore::WalkBuilder::new(root)
        .hidden(false)
        .filter_entry(|e| e.file_name() != ".git")
        .sort_by_file_name(Ord::cmp)
        .build();
    let files = walk.flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    files.map(|entry| entry.path().strip_prefix(root).unwrap().to_string_lossy().into_owned()).collect()
}

/// All `path:line` places of a text, in order.
fn citations(report: &str) -> Vec<String> {
    let pattern = regex::Regex::new(r"[\w.-]+(?:/[\w.-]+)*:\d+").unwrap();
    pattern.find_iter(report).map(|found| found.as_str().to_owned()).collect()
}

/// Paths and contents.
type Files = &'static [(&'static str, &'static str)];

/// A repository like the one of the founding question, with the decoys that a plain search falls for.
const DECODE: Files = &[
    (
        "README.md",
        "# Decode\n\nA coding agent.\n\n## The agent tool function\n\nThe agent tool fans out prompts; the agent tool function lives in tools.\n",
    ),
    (
        "docs/agent-tool.md",
        "# Agent tool\n\nThe agent tool function `agent` spawns children. Each agent tool call is one span.\n",
    ),
    ("pyproject.toml", "[project]\nname = \"decode\"\ndescription = \"A coding agent harness\"\n"),
    ("src/decode/__main__.py", "\"\"\"Starts the command line.\"\"\"\n\nfrom decode.cli import main\n\nmain()\n"),
    (
        "src/decode/agents/loader.py",
        "\"\"\"Loads personas.\"\"\"\n\nfrom decode.entities import Agent\n\n\ndef load_agent(name: str) -> Agent:\n    \"\"\"Find one persona by name.\"\"\"\n    return load_agents()[name]\n\n\ndef load_agents() -> dict[str, Agent]:\n    return {}\n",
    ),
    (
        "src/decode/entities.py",
        "class Agent:\n    \"\"\"A persona.\"\"\"\n\n    tools: list[str] = []\n\n\nclass Tool:\n    name: str\n",
    ),
    (
        "src/decode/tools/agent.py",
        "\"\"\"The agent tool.\"\"\"\n\nimport asyncio\n\nMAX_FANOUT_PROMPTS = 6\n\n\nasync def agent(ctx, prompts: list[str]) -> str:\n    \"\"\"Fan prompts out to children. Then fold.\"\"\"\n    if not prompts:\n        raise ModelRetry(\"The agent tool needs at least one exploration prompt\")\n    return await asyncio.gather(*(_spawn_child(ctx, p) for p in prompts))\n\n\nasync def _spawn_child(ctx, prompt: str) -> str:\n    report = await _run_attempt(ctx, prompt)\n    return report or RETRY_NUDGE\n\n\nasync def _run_attempt(ctx, prompt):\n    return None\n",
    ),
    (
        "src/decode/tools/read.py",
        "from decode.tools.truncate import truncate\n\n\nasync def read(ctx, path: str) -> str:\n    return truncate(path)\n",
    ),
    (
        "src/decode/tools/truncate.py",
        "def truncate(text: str, max_lines: int = 2000) -> str:\n    \"\"\"Cut the text to lines and bytes.\"\"\"\n    return text\n",
    ),
    (
        "src/decode/factory.py",
        "from decode.tools.agent import agent\n\n\ndef build_agent(settings):\n    tools = [agent]\n    return tools\n",
    ),
    (
        "tests/test_agent.py",
        "from decode.tools.agent import agent\n\n\nasync def test_agent_tool_function_rejects_no_prompts():\n    await agent(None, [])\n\n\ndef agent_tool():\n    return agent\n",
    ),
    (
        "tests/test_truncate.py",
        "from decode.tools.truncate import truncate\n\n\ndef test_truncate_keeps_short_text():\n    assert truncate('a') == 'a'\n",
    ),
];

const RUST: Files = &[
    ("Cargo.toml", "[package]\nname = \"courier\"\nversion = \"0.1.0\"\ndescription = \"Delivers parcels\"\n"),
    ("Cargo.lock", "[[package]]\nname = \"retry\"\n"),
    (
        "src/main.rs",
        "//! Starts the courier.\n\nmod limiter;\nmod net;\n\nfn main() {\n    net::http::send(\"x\");\n}\n",
    ),
    (
        "src/limiter.rs",
        "//! Paces requests.\n\n/// Lets at most `width` requests through at once. The rest wait.\npub struct RateLimiter {\n    width: usize,\n}\n\nimpl RateLimiter {\n    /// Waits for a free slot.\n    pub fn acquire(&self) -> Slot {\n        Slot\n    }\n}\n\npub struct Slot;\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn the_rate_limiter_lets_the_first_request_through() {\n    }\n}\n",
    ),
    ("src/net/mod.rs", "pub mod http;\n"),
    (
        "src/net/http.rs",
        "//! Speaks HTTP.\n\nuse crate::limiter::RateLimiter;\n\nconst MAX_RETRIES: u32 = 5;\n\n/// How long to wait before the next try.\nfn backoff_delay(attempt: u32) -> u64 {\n    1 << attempt\n}\n\npub fn send(url: &str) {\n    for attempt in 0..MAX_RETRIES {\n        let delay = backoff_delay(attempt);\n        if delay > 99 {\n            panic!(\"failed to deliver parcel {url}\");\n        }\n    }\n}\n",
    ),
    ("tests/delivery.rs", "#[test]\nfn a_parcel_is_retried() {\n    // retry\n}\n"),
];

const TYPESCRIPT: Files = &[
    ("package.json", "{\n  \"name\": \"shop\",\n  \"main\": \"src/index.ts\"\n}\n"),
    ("src/index.ts", "import { Router } from './router';\n\nexport const router = new Router();\n"),
    (
        "src/router.ts",
        "import { requireLogin } from './auth/session';\n\n/** Maps paths to pages. */\nexport class Router {\n  private pages = new Map();\n\n  addRoute(path: string, page: Page) {\n    this.pages.set(path, requireLogin(page));\n  }\n}\n",
    ),
    (
        "src/auth/session.ts",
        "export interface Session {\n  user: string;\n}\n\nexport const requireLogin = (page: Page) => {\n  return page;\n};\n\nexport function parseSessionCookie(header: string): Session {\n  return JSON.parse(header);\n}\n",
    ),
    (
        "src/cart/useCartTotal.ts",
        "// Adds up what is in the cart.\nexport function useCartTotal(items: Item[]): number {\n  const total = items.length;\n  return total;\n}\n",
    ),
    (
        "src/router.test.ts",
        "import { Router } from './router';\n\ntest('addRoute maps a path', () => {\n  new Router().addRoute('/', page);\n});\n",
    ),
    ("node_modules/router/index.js", "class Router {\n  addRoute(path) {\n  }\n}\n"),
];

const GO: Files = &[
    ("go.mod", "module example.org/store\n"),
    ("cmd/store/main.go", "package main\n\nfunc main() {\n\tserver := NewServer()\n\tserver.Listen()\n}\n"),
    (
        "internal/server/server.go",
        "package server\n\n// Server answers requests.\ntype Server struct {\n\tport int\n}\n\n// NewServer makes a server with the usual port.\nfunc NewServer() *Server {\n\treturn &Server{port: 80}\n}\n\nfunc (s *Server) Listen() error {\n\treturn s.evictExpired()\n}\n",
    ),
    (
        "internal/cache/cache.go",
        "package cache\n\nvar DefaultTTL = 60\n\n// EvictExpired removes entries older than the TTL. It is called every minute.\nfunc (c *Cache) EvictExpired() int {\n\treturn 0\n}\n",
    ),
    ("internal/cache/cache_test.go", "package cache\n\nfunc TestEvictExpired(t *testing.T) {\n}\n"),
    ("deploy/run.sh", "#!/bin/sh\nrollback() {\n  exit 1\n}\n"),
    ("db/schema.sql", "-- who buys\nCREATE TABLE customers (\n  id int\n);\n"),
];

/// Question, repository, and what the report must cite first.
const PAIRS: &[(&str, Files, &str)] = &[
    ("Where is the agent tool function? Report the path with file:line.", DECODE, "src/decode/tools/agent.py:8"),
    ("Find the function that loads an agent persona by name.", DECODE, "src/decode/agents/loader.py:6"),
    ("What is MAX_FANOUT_PROMPTS?", DECODE, "src/decode/tools/agent.py:5"),
    ("Where is the class Agent defined?", DECODE, "src/decode/entities.py:1"),
    ("Who raises \"needs at least one exploration prompt\"?", DECODE, "src/decode/tools/agent.py:11"),
    ("Where does truncation of tool output happen?", DECODE, "src/decode/tools/truncate.py:1"),
    ("Где находится функция agent tool?", DECODE, "src/decode/tools/agent.py:8"),
    ("Which tests cover truncate?", DECODE, "tests/test_truncate.py:4"),
    ("How does the rate limiter work? Cite evidence with file:line.", RUST, "src/limiter.rs:4"),
    ("How many retries are made, and where is that limit set?", RUST, "src/net/http.rs:5"),
    ("What does `backoff_delay` do?", RUST, "src/net/http.rs:8"),
    ("Where does the error 'failed to deliver parcel /home' come from?", RUST, "src/net/http.rs:16"),
    ("Who calls backoff_delay?", RUST, "src/net/http.rs:14"),
    ("What does src/net/http.rs do?", RUST, "src/net/http.rs:1"),
    ("Where is the Router class?", TYPESCRIPT, "src/router.ts:4"),
    ("Where are session cookies parsed?", TYPESCRIPT, "src/auth/session.ts:9"),
    ("Which function computes the cart total?", TYPESCRIPT, "src/cart/useCartTotal.ts:2"),
    ("How are routes added?", TYPESCRIPT, "src/router.ts:7"),
    ("where is add_route", TYPESCRIPT, "src/router.ts:7"),
    ("Where are expired cache entries evicted?", GO, "internal/cache/cache.go:6"),
    ("Find NewServer and say what it does", GO, "internal/server/server.go:9"),
    ("What is the default TTL?", GO, "internal/cache/cache.go:3"),
    ("Which shell function does the rollback?", GO, "deploy/run.sh:2"),
    ("Where is the customers table created?", GO, "db/schema.sql:2"),
];

fn repository(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    root
}

/// Every cited place must be a line of the repository, shown in some tool's answer.
fn assert_all_seen(talk: &Talk, report: &str) {
    for citation in citations(report) {
        let (path, line) = citation.rsplit_once(':').unwrap();
        let calls = talk.request.messages.iter().filter_map(|message| match message {
            Message::Assistant(turn) => Some(&turn.calls),
            Message::User(_) | Message::Tool(_) => None,
        });
        let calls: Vec<&ToolCall> = calls.flatten().collect();
        let is_read_of = |id: &str, path: &str| {
            calls
                .iter()
                .any(|call| call.id == id && matches!(&call.input, ToolInput::Sound(input) if input["path"] == path))
        };
        let seen = talk.request.messages.iter().any(|message| match message {
            Message::Tool(result) if result.ok && result.name == "grep" => {
                result.output.lines().any(|found| found.starts_with(&format!("{citation}:")))
            }
            Message::Tool(result) if result.ok && result.name == "read" && is_read_of(&result.call, path) => {
                result.output.lines().any(|found| found.starts_with(&format!("{line}\t")))
            }
            _ => false,
        });
        assert!(seen, "{citation} was never seen:\n{report}");
    }
}

#[test]
fn the_first_citation_is_the_answer() {
    let mut wrong = Vec::new();
    for (question, files, place) in PAIRS {
        let root = repository(files);
        let mut talk = Talk::about(root.path(), question);
        let report = talk.report();
        assert_all_seen(&talk, &report);
        assert!(talk.turns <= 8, "{question} took {} requests", talk.turns);
        assert!(report.len() < 6000 && report.contains("not a language model"));
        let first = citations(&report).into_iter().next().unwrap_or_default();
        if first != *place {
            wrong.push(format!("{question}\n  wanted {place}, got {first}\n{report}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), PAIRS.len(), wrong.join("\n"));
}

#[test]
fn a_steered_question_leads_and_the_new_answer_comes_first() {
    let root = repository(RUST);
    let mut talk = Talk::about(root.path(), "Where is the rate limiter?");
    talk.turn();
    talk.say("person pts/3", "Rather tell me where backoff_delay is.");
    let report = talk.report();
    assert_eq!(citations(&report)[0], "src/net/http.rs:8");
    talk.say("send", "And the tests?");
    let report = talk.report();
    assert!(report.contains("How I searched"), "{report}");
    assert_all_seen(&talk, &report);
}

#[test]
fn a_request_without_tools_is_answered_with_what_is_known() {
    let root = repository(RUST);
    let mut talk = Talk::about(root.path(), "Where is the rate limiter?");
    talk.turn();
    talk.request.tools.clear();
    talk.say("supervisor", "Your budget is nearly spent: write your final report now.");
    let turn = talk.turn();
    assert!(turn.calls.is_empty());
    assert_eq!(citations(&turn.text)[0], "src/limiter.rs:4");
}

#[test]
fn a_first_request_without_tools_says_that_nothing_could_be_searched() {
    let mut talk = Talk::about(Path::new("."), "Where is the rate limiter?");
    talk.request.tools.clear();
    let turn = talk.turn();
    assert!(turn.calls.is_empty() && turn.text.contains("nothing could be searched"), "{}", turn.text);
    assert_eq!(citations(&turn.text), [""; 0]);
}

#[test]
fn only_offered_tools_are_called_and_no_call_is_made_twice() {
    for offered in ["grep", "glob", "read"] {
        let root = repository(DECODE);
        let mut talk = Talk::about(root.path(), "How does the agent tool spawn a child?");
        talk.request.tools.retain(|tool| tool.name == offered);
        talk.report();
        let calls = talk.request.messages.iter().filter_map(|message| match message {
            Message::Assistant(turn) => Some(&turn.calls),
            _ => None,
        });
        let mut seen: Vec<&ToolCall> = Vec::new();
        for call in calls.flatten() {
            assert_eq!(call.name, offered);
            assert!(!seen.iter().any(|other| other.input == call.input || other.id == call.id), "{call:?}");
            seen.push(call);
        }
    }
}

#[test]
fn a_nudged_task_is_searched_like_the_task_itself() {
    let root = repository(DECODE);
    let nudge =
        "IMPORTANT: your previous report was unusable: it cited no code you actually read. Use your tools first.";
    let mut talk = Talk::about(root.path(), "Where is the agent tool function?");
    talk.say("supervisor", nudge);
    assert_eq!(citations(&talk.report())[0], "src/decode/tools/agent.py:8");
}

#[test]
fn a_question_without_words_is_answered_with_what_the_repository_is() {
    for question in ["What is this?", "Summarise this repository", "", "你好"] {
        let root = repository(RUST);
        let mut talk = Talk::about(root.path(), question);
        let report = talk.report();
        assert_all_seen(&talk, &report);
        assert!(!report.trim().is_empty());
        if question != "你好" {
            assert!(report.contains("Cargo.toml:2") && report.contains("src/main.rs:6"), "{report}");
        }
    }
}

#[test]
fn what_is_not_there_is_said_and_nothing_is_cited_for_it() {
    let root = repository(GO);
    let mut talk = Talk::about(root.path(), "Where is the flux capacitor calibrated?");
    let report = talk.report();
    assert!(report.starts_with("Not found: `flux`, `capacitor`, `calibrated`"), "{report}");
    assert_eq!(citations(&report), [""; 0]);
    let mut empty = Talk::about(repository(&[]).path(), "What is this?");
    assert!(empty.report().starts_with("Not found"));
}

#[test]
fn a_huge_prompt_and_hostile_lines_do_no_harm() {
    let line = "x".repeat(100_000);
    let files = [("src/limiter.rs", format!("fn limiter() {{}}\n// {line} limiter\n\u{1b}[31mlimiter `{{}}`\n"))];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let root = repository(&files);
    let question = format!("Where is the limiter? ([{{*\\ {}", "some_word+ other(".repeat(100_000));
    let report = Talk::about(root.path(), &question).report();
    assert!(report.len() < 6000 && !report.contains('\u{1b}'), "{report}");
    assert_eq!(citations(&report)[0], "src/limiter.rs:1");
}

#[test]
fn the_same_conversation_is_always_answered_the_same() {
    let root = repository(DECODE);
    let mut talk = Talk::about(root.path(), "How does the agent tool fold reports of children into one answer?");
    while !talk.turn().calls.is_empty() {
        assert_eq!(next_turn(&talk.request), next_turn(&talk.request));
    }
}

#[tokio::test]
async fn the_stream_shows_text_then_calls_then_its_end() {
    let root = repository(RUST);
    let mut talk = Talk::about(root.path(), "Where is the rate limiter?");
    let first: Vec<_> = Explorer::default().stream(talk.request.clone()).collect().await;
    assert!(matches!(&first[0], Ok(ProviderEvent::Text(text)) if text.contains("limiter")));
    assert!(matches!(&first[1], Ok(ProviderEvent::Call(_))));
    assert!(
        matches!(first.last(), Some(Ok(ProviderEvent::Finished { stop: StopReason::ToolCalls, usage })) if usage.cost_usd == Some(0.0) && usage.requests == 1)
    );
    while !talk.turn().calls.is_empty() {}
    talk.request.messages.pop();
    let last: Vec<_> = Explorer::default().stream(talk.request).collect().await;
    assert!(last.len() > 3, "the report comes in pieces, so that work is seen");
    assert!(matches!(last.last(), Some(Ok(ProviderEvent::Finished { stop: StopReason::End, .. }))));
}
