//! A language server that does what it is told, and one that does everything wrong: a script of Python, over real pipes.

use std::time::Instant;

use super::super::edit::Edit;
use super::super::fixture::{Fixture, input};
use super::super::write::Write;
use super::super::{Tool, Unconfined};
use super::*;
use crate::model::language_server::LanguageServer;

/// Every line that holds `BAD` is an error; definitions are on the first line; hover repeats the line it was asked about.
const FAKE: &str = r#"
import json, os, subprocess, sys, time

mode = sys.argv[1]
out = sys.stdout.buffer

def write(data):
    out.write(data)
    out.flush()

def send(message):
    body = json.dumps(dict(jsonrpc="2.0", **message)).encode()
    write(b"Content-Length: %d\r\n\r\n" % len(body) + body)

def receive():
    length = 0
    while True:
        line = sys.stdin.buffer.readline()
        if not line:
            sys.exit(0)
        if line == b"\r\n":
            return json.loads(sys.stdin.buffer.read(length))
        name, value = line.split(b":")
        if name.lower() == b"content-length":
            length = int(value)

def problems(text):
    lines = text.split("\n")
    at = lambda n, line: {"line": n, "character": len(line[:line.find("BAD")].encode("utf-16-le")) // 2}
    return [{"range": {"start": at(n, line), "end": at(n, line)}, "severity": 1, "code": "E1", "message": line.strip()}
            for n, line in enumerate(lines) if "BAD" in line]

if mode == "complains":
    sys.stderr.write("no such toolchain\n")
    sys.exit(1)
if mode == "garbage":
    write(b"Welcome to the server!\n" * 3)
    time.sleep(600)
if mode == "huge":
    write(b"Content-Length: 99999999999\r\n\r\n")
    time.sleep(600)
if mode == "silent":
    time.sleep(600)
if mode == "forks":
    subprocess.Popen(["sleep", "600"], start_new_session=True)

texts = {}
while True:
    message = receive()
    method, params, id = message.get("method"), message.get("params"), message.get("id")
    if method == "initialize":
        pull = {"diagnosticProvider": {"interFileDependencies": True, "workspaceDiagnostics": False}}
        send({"id": 999, "method": "workspace/configuration", "params": {"items": [{"section": "x"}]}})
        send({"id": id, "result": {"capabilities": pull if mode == "pulls" else {}}})
        if mode == "indexes":
            send({"method": "$/progress", "params": {"token": 1, "value": {"kind": "begin", "title": "Indexing"}}})
    elif method in ("textDocument/didOpen", "textDocument/didChange"):
        document = params["textDocument"]
        text = document["text"] if "text" in document else params["contentChanges"][0]["text"]
        texts[document["uri"]] = text
        if mode != "pulls":
            # First a list for a text that is not there any more.
            stale = {"uri": document["uri"], "version": document["version"] - 1, "diagnostics": problems("BAD stale")}
            send({"method": "textDocument/publishDiagnostics", "params": stale})
            fresh = {"uri": document["uri"], "version": document["version"], "diagnostics": problems(text)}
            send({"method": "textDocument/publishDiagnostics", "params": fresh})
    elif method == "textDocument/diagnostic":
        send({"id": id, "result": {"kind": "full", "items": problems(texts[params["textDocument"]["uri"]])}})
    elif method == "textDocument/hover":
        if mode == "deaf":
            continue
        if mode == "dies":
            sys.exit(3)
        if mode == "disturbed" and not texts.get("disturbed"):
            texts["disturbed"] = "yes"
            send({"id": id, "error": {"code": -32801, "message": "content modified"}})
            continue
        if mode == "refuses":
            send({"id": id, "error": {"code": -1, "message": "I will not"}})
            continue
        line = texts[params["textDocument"]["uri"]].split("\n")[params["position"]["line"]]
        units = line.encode("utf-16-le")[2 * params["position"]["character"]:].decode("utf-16-le")
        send({"id": id, "result": {"contents": {"kind": "plaintext", "value": "at: " + units}}})
    elif method in ("textDocument/definition", "textDocument/references"):
        uri = params["textDocument"]["uri"]
        place = lambda uri, n, c: {"uri": uri, "range": {"start": {"line": n, "character": c}, "end": {"line": n, "character": c}}}
        folder = uri.rsplit("/", 1)[0]
        send({"id": id, "result": [place(uri, 0, 3), place(folder + "/secret/a.fake", 0, 0), place(folder + "/.env", 0, 0),
                                   place("file:///usr/lib/x.fake", 4, 2)]})
    elif method == "$/cancelRequest":
        with open("cancelled", "w") as file:
            file.write(str(params["id"]))
    elif id is not None and method is not None:
        send({"id": id, "error": {"code": -32601, "message": "unknown"}})
"#;

/// A workspace whose `.fake` files have a server that behaves in this way.
struct World {
    fixture: Fixture,
    servers: Arc<Servers>,
    runtime: tokio::runtime::Runtime,
}

impl World {
    fn new(mode: &str) -> Self {
        let fixture = Fixture::new();
        fixture.write("a.fake", "fn 🙂 name\nBAD old\n");
        let script = fixture.scope.root.parent().unwrap().join("server.py");
        std::fs::write(&script, FAKE).unwrap();
        let command = vec!["python3".to_owned(), script.display().to_string(), mode.to_owned()];
        let named = LanguageServer { name: "fake".to_owned(), command, extensions: vec!["fake".to_owned()] };
        let servers = Arc::new(Servers::new(vec![named], Unconfined::Allowed));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { fixture, servers, runtime }
    }

    fn run(&self, tool: &dyn Tool, arguments: Value) -> Answer {
        self.runtime.block_on(tool.run(input(arguments), &self.fixture.scope))
    }

    fn ask(&self, arguments: Value) -> Answer {
        self.run(&Lsp { servers: Arc::clone(&self.servers) }, arguments)
    }

    fn hover(&self, line: u64, column: u64) -> Answer {
        self.ask(json!({"op": "hover", "path": "a.fake", "line": line, "column": column}))
    }

    fn edit(&self, old: &str, new: &str) -> Answer {
        let edit = Edit { servers: Arc::clone(&self.servers) };
        self.run(&edit, json!({"path": "a.fake", "old_string": old, "new_string": new}))
    }
}

#[test]
fn each_operation_answers_in_lines_and_columns_of_people() {
    let world = World::new("works");
    world.fixture.write("secret/a.fake", "x");
    assert_eq!(world.hover(1, 4), Answer::done("at: 🙂 name"));
    assert_eq!(world.hover(1, 5), Answer::done("at:  name"));
    let places = world.ask(json!({"op": "definition", "path": "a.fake", "line": 2, "column": 1}));
    assert_eq!(places.text, "a.fake:1:4: fn 🙂 name\nsecret/a.fake:1:1: x\n/usr/lib/x.fake:5:3");
    let problems = world.ask(json!({"op": "diagnostics", "path": "a.fake"}));
    assert_eq!(problems, Answer::done("a.fake:2:1: error[E1]: BAD old"));
    world.fixture.write("a.fake", "new\n🙂 BAD newer\n");
    let changed = world.ask(json!({"op": "diagnostics", "path": "a.fake"}));
    assert_eq!(changed, Answer::done("a.fake:2:3: error[E1]: 🙂 BAD newer"));
    world.fixture.write("a.fake", "fine\n");
    assert_eq!(world.ask(json!({"op": "diagnostics", "path": "a.fake"})).text, "no problem found in a.fake");
    assert_eq!(world.servers.living().len(), 1, "one server for all of it");
}

#[test]
fn a_server_that_is_to_be_asked_for_problems_is_asked() {
    let world = World::new("pulls");
    let problems = world.ask(json!({"op": "diagnostics", "path": "a.fake"}));
    assert_eq!(problems, Answer::done("a.fake:2:1: error[E1]: BAD old"));
}

#[test]
fn places_that_rules_deny_are_left_out() {
    let mut world = World::new("works");
    world.fixture.write("secret/a.fake", "x");
    world.fixture.scope.deny = vec!["read(secret/**)".parse().unwrap()];
    let places = world.ask(json!({"op": "references", "path": "a.fake", "line": 1, "column": 1}));
    assert_eq!(places.text, "a.fake:1:4: fn 🙂 name\n/usr/lib/x.fake:5:3");
    assert!(!world.ask(json!({"op": "diagnostics", "path": "secret/a.fake"})).ok);
}

#[test]
fn a_server_that_does_everything_wrong_is_unavailable_and_says_why() {
    for (mode, says) in [
        ("garbage", "wrote `Welcome to the server!` where the length"),
        ("huge", "announced a message of 99999999999 bytes"),
        ("complains", "it said: no such toolchain"),
        ("dies", "closed its output"),
        ("refuses", "refused `textDocument/hover`: I will not"),
    ] {
        let answer = World::new(mode).hover(1, 1);
        assert!(!answer.ok && answer.text.starts_with("unavailable: "), "{mode}: {answer:?}");
        assert!(answer.text.contains(says) && answer.text.contains("use grep and read instead"), "{mode}: {answer:?}");
    }
}

#[test]
fn a_server_that_ends_is_started_again_but_not_for_ever() {
    let world = World::new("dies");
    for _ in 0..3 {
        assert!(world.hover(1, 1).text.contains("closed its output"));
    }
    assert!(world.hover(1, 1).text.contains("has ended 3 times"));
}

#[test]
fn a_question_that_was_disturbed_is_asked_again() {
    assert_eq!(World::new("disturbed").hover(2, 1), Answer::done("at: BAD old"));
}

#[test]
fn a_silent_server_is_left_when_the_call_is_cut() {
    for mode in ["silent", "deaf"] {
        let world = World::new(mode);
        let lsp = Lsp { servers: Arc::clone(&world.servers) };
        let arguments = json!({"op": "hover", "path": "a.fake", "line": 1, "column": 1});
        let cut = world.runtime.block_on(async {
            let mut running = lsp.run(input(arguments), &world.fixture.scope);
            let early = tokio::time::timeout(Duration::from_millis(300), &mut running).await;
            assert!(early.is_err(), "{early:?}");
            world.fixture.cut.send(true).unwrap();
            running.await
        });
        assert!(!cut.ok && cut.text.contains("cut short"), "{cut:?}");
    }
}

#[test]
fn a_question_nobody_waits_for_any_more_is_taken_back() {
    let world = World::new("deaf");
    world.runtime.block_on(async {
        let path = world.fixture.path("a.fake");
        let session = world.servers.session(&path, &world.fixture.scope).await.unwrap();
        session.show(&path, "fake", "x").await.unwrap();
        let params = json!({"textDocument": {"uri": place::uri_of(&path)}, "position": {"line": 0, "character": 0}});
        let slow = session.ask("textDocument/hover", &params, Duration::from_millis(200)).await.unwrap_err();
        assert!(slow.to_string().contains("did not answer"), "{slow}");
        let end = Instant::now() + Duration::from_secs(20);
        while !world.fixture.path("cancelled").exists() {
            assert!(Instant::now() < end, "it is told");
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn all_a_server_started_ends_with_it() {
    use crate::command::identity::{Identity, Liveness, liveness};
    let world = World::new("forks");
    assert!(world.hover(1, 1).ok);
    let end = Instant::now() + Duration::from_secs(20);
    while world.servers.living().len() < 2 {
        assert!(Instant::now() < end, "{:?}", world.servers.living());
        std::thread::yield_now();
    }
    let all: Vec<Identity> = world.servers.living().into_iter().filter_map(Identity::of).collect();
    let World { servers, runtime, fixture: _fixture } = world;
    runtime.block_on(async { drop(servers) });
    while all.iter().any(|process| liveness(process) == Liveness::Alive) {
        assert!(Instant::now() < end, "{all:?}");
        std::thread::yield_now();
    }
}

#[test]
fn a_change_is_answered_with_the_errors_it_brought_and_no_others() {
    for mode in ["works", "pulls"] {
        let world = World::new(mode);
        assert_eq!(world.edit("name", "names").text, "Edited `a.fake`: 1 place, line 1", "no server runs yet");
        assert!(world.hover(1, 1).ok);
        let broken = world.edit("names", "BAD\nBAD more").text;
        let want = "Edited `a.fake`: 1 place, line 1\nfake says of this change:\n\
            a.fake:1:6: error[E1]: fn 🙂 BAD\na.fake:2:1: error[E1]: BAD more";
        assert_eq!(broken, want, "{mode}");
        assert!(!world.edit("BAD more", "well").text.contains("says"), "{mode}");
        let write = Write { servers: Arc::clone(&world.servers) };
        let many = world.run(&write, json!({"path": "b.fake", "content": "BAD x\n".repeat(30)})).text;
        assert!(many.lines().count() == 12 && many.ends_with("[21 errors more]"), "{mode}: {many}");
    }
}

#[test]
fn while_a_server_looks_at_the_project_a_change_is_not_held_up() {
    let world = World::new("indexes");
    world.runtime.block_on(async {
        let path = world.fixture.path("a.fake");
        let session = world.servers.session(&path, &world.fixture.scope).await.unwrap();
        assert_eq!(session.settle(Duration::from_millis(1_500)).await, Settled::NotYet);
    });
    assert_eq!(world.edit("name", "BAD").text, "Edited `a.fake`: 1 place, line 1");
}

#[test]
fn without_a_sandbox_a_project_that_is_not_trusted_gets_no_server() {
    let world = World::new("works");
    let refused = Lsp { servers: Arc::new(Servers::new(world.servers.named().to_vec(), Unconfined::Refused)) };
    let answer = world.run(&refused, json!({"op": "hover", "path": "a.fake", "line": 1, "column": 1}));
    assert!(answer.text.starts_with("unavailable: `fake` runs code of the project"), "{answer:?}");
}

#[test]
fn questions_that_make_no_sense_are_corrected_before_a_server_starts() {
    let world = World::new("works");
    world.fixture.write(".env", "x");
    for (arguments, says) in [
        (json!({"op": "rename", "path": "a.fake"}), "is no operation"),
        (json!({"op": "hover", "path": "a.fake"}), "line and column"),
        (json!({"op": "hover", "path": "a.fake", "line": 1}), "line and column"),
        (json!({"op": "hover", "path": "b.fake", "line": 1, "column": 1}), "did you mean `a.fake`"),
        (json!({"op": "hover", "path": "../a.fake", "line": 1, "column": 1}), "outside"),
        (json!({"op": "diagnostics", "path": ".env"}), "for commands"),
        (json!({"op": "diagnostics", "path": "."}), "directory"),
        (json!({"path": "a.fake"}), "missing"),
    ] {
        let answer = world.ask(arguments.clone());
        assert!(!answer.ok && answer.text.contains(says), "{arguments}: {answer:?}");
    }
    assert_eq!(world.servers.living(), [0; 0]);
    assert!(world.hover(9, 1).text.contains("there is no line 9"));
}
