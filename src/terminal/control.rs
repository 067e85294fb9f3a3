//! One control-mode connection to a tmux server: commands go out pipelined, replies come back in order.
//!
//! tmux puts each reply between `%begin T N F` and `%end T N F` (or `%error`), and notifications between replies.
//! Everything is bytes: a window may have any name. Deliberately absent: which commands there are (`tmux.rs`,
//! `server.rs`), and notifications; they tell nothing that a file or a pidfd does not tell sooner.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use tmux_interface::{AttachSession, TmuxCommand};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};

use super::TerminalError;
use super::server::{Server, exact, words};

/// A server that does not answer for this long hangs. It is not said to be gone: its windows may well live.
const ANSWER: Duration = Duration::from_secs(10);

/// The flag of what a client asked for. Our own attach, hooks and key bindings are answered with 0.
const ASKED: &[u8] = b" 1";

/// A command word for word.
pub(super) type Words = Vec<OsString>;

/// Sends commands to the server of one session. The connection is made by the first command, and made anew by the
/// first command after it broke.
#[derive(Debug)]
pub(super) struct Control {
    server: Server,
    session: String,
    requests: OnceLock<mpsc::UnboundedSender<Request>>,
}

#[derive(Debug)]
struct Request {
    line: Vec<u8>,
    answer: Answer,
}

type Answer = oneshot::Sender<Result<Vec<u8>, TerminalError>>;

impl Control {
    pub(super) fn new(server: Server, session: String) -> Self {
        Self { server, session, requests: OnceLock::new() }
    }

    /// Sends one command and returns what it printed. Commands sent meanwhile do not wait for this reply.
    pub(super) async fn send(&self, command: &[OsString]) -> Result<String, TerminalError> {
        let requests = self.requests.get_or_init(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            tokio::spawn(serve(self.server.clone(), self.session.clone(), receiver));
            sender
        });
        let (answer, reply) = oneshot::channel();
        let request = Request { line: line(command), answer };
        requests.send(request).map_err(|_| TerminalError::ServerGone)?;
        let silent = || TerminalError::Refused { message: format!("no answer within {} s", ANSWER.as_secs()) };
        let reply = tokio::time::timeout(ANSWER, reply).await.map_err(|_| silent())?;
        let reply = reply.map_err(|_| TerminalError::ServerGone)??;
        Ok(String::from_utf8_lossy(&reply).into_owned())
    }
}

/// The command as one line. A byte that tmux could read as more than itself is written as `\ooo`: that one rule
/// covers quotes, `$`, `;`, `~`, line feeds and bytes that are not UTF-8.
fn line(command: &[OsString]) -> Vec<u8> {
    let mut line = Vec::new();
    for word in command {
        line.push(b'"');
        for byte in word.as_bytes() {
            if byte.is_ascii_alphanumeric() || b" %@=:,./_-+".contains(byte) {
                line.push(*byte);
            } else {
                line.extend(format!("\\{byte:03o}").bytes());
            }
        }
        line.extend(b"\" ");
    }
    line.push(b'\n');
    line
}

/// Connects when there is something to send, until nobody can send any more.
async fn serve(server: Server, session: String, mut requests: mpsc::UnboundedReceiver<Request>) {
    while let Some(request) = requests.recv().await {
        match Connection::open(&server, &session) {
            Ok(connection) => connection.serve(request, &mut requests).await,
            // Who asked may have stopped waiting.
            Err(error) => drop(request.answer.send(Err(error))),
        }
    }
}

struct Connection {
    /// Killed when this value is dropped.
    _client: Child,
    input: ChildStdin,
    output: ChildStdout,
    replies: Replies,
    pending: VecDeque<Answer>,
    unsent: Vec<u8>,
}

impl Connection {
    fn open(server: &Server, session: &str) -> Result<Self, TerminalError> {
        let mut attach = words(&AttachSession::new().target_session(exact(session)).build());
        // The server holds back nothing for us: unread output of every window would grow in its memory.
        attach.extend(["-f".into(), "no-output,ignore-size".into()]);
        let mut command = tokio::process::Command::new("tmux");
        command
            .args(server.options())
            .arg("-C")
            .args(attach)
            .env_clear()
            .envs(server.environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A Ctrl-C at our terminal is ours to judge, and must not end the connection.
            .process_group(0)
            .kill_on_drop(true);
        let mut client = command.spawn().map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => TerminalError::NoTmux,
            _ => TerminalError::Start { program: "tmux".to_owned(), source },
        })?;
        let input = client.stdin.take().expect("stdin is piped above");
        let output = client.stdout.take().expect("stdout is piped above");
        Ok(Self {
            _client: client,
            input,
            output,
            replies: Replies::default(),
            pending: VecDeque::new(),
            unsent: Vec::new(),
        })
    }

    /// Passes commands and replies until the connection breaks or nobody can send any more.
    async fn serve(mut self, first: Request, requests: &mut mpsc::UnboundedReceiver<Request>) {
        self.accept(first);
        let mut refusal = None;
        let mut buffer = vec![0; 16 * 1024];
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => self.accept(request),
                    None => return,
                },
                written = self.input.write(&self.unsent), if !self.unsent.is_empty() => match written {
                    Ok(count) => drop(self.unsent.drain(..count)),
                    // What the server said last is still to be read; the end of the output ends the loop.
                    Err(_) => self.unsent.clear(),
                },
                read = self.output.read(&mut buffer) => match read {
                    Ok(0) | Err(_) => break,
                    Ok(count) => for event in self.replies.feed(&buffer[..count]) {
                        match event {
                            Event::Reply(reply) => self.answer(reply),
                            Event::NotAttached(message) => refusal = Some(message),
                        }
                    },
                },
            }
        }
        for answer in self.pending {
            let error = refusal.clone().map_or(TerminalError::ServerGone, |message| TerminalError::Refused { message });
            drop(answer.send(Err(error)));
        }
    }

    fn accept(&mut self, request: Request) {
        self.unsent.extend(request.line);
        self.pending.push_back(request.answer);
    }

    fn answer(&mut self, reply: Result<Vec<u8>, String>) {
        if let Some(answer) = self.pending.pop_front() {
            drop(answer.send(reply.map_err(|message| TerminalError::Refused { message })));
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Event {
    /// The next command was answered: what it printed, or why it was refused.
    Reply(Result<Vec<u8>, String>),
    /// The session could not be attached; the client ends by itself.
    NotAttached(String),
}

/// Finds the replies in what tmux writes.
#[derive(Debug, Default)]
struct Replies {
    /// The start of a line whose end has not come yet.
    partial: Vec<u8>,
    /// Blocks that no client asked for. The first answers our own attach, which a command may overtake.
    others: u64,
    block: Option<Block>,
}

#[derive(Debug)]
struct Block {
    /// `T N F` of its begin: only the same three end it, whatever a line in it looks like.
    mark: Vec<u8>,
    lines: Vec<u8>,
}

impl Replies {
    fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if self.partial.last() == Some(&b'\n') {
                let mut line = std::mem::take(&mut self.partial);
                line.pop();
                events.extend(self.line(&line));
            }
        }
        events
    }

    fn line(&mut self, line: &[u8]) -> Option<Event> {
        let Some(block) = &mut self.block else {
            // Outside a reply there are notifications only, `%exit` too: the end of the output follows it.
            let mark = line.strip_prefix(b"%begin ")?;
            self.others += u64::from(!mark.ends_with(ASKED));
            self.block = Some(Block { mark: mark.to_vec(), lines: Vec::new() });
            return None;
        };
        let ends = |word: &[u8]| line.strip_prefix(word) == Some(block.mark.as_slice());
        let refused = ends(b"%error ");
        if !refused && !ends(b"%end ") {
            block.lines.extend_from_slice(line);
            block.lines.push(b'\n');
            return None;
        }
        let block = self.block.take()?;
        let message = || String::from_utf8_lossy(&block.lines).trim_end().to_owned();
        match (block.mark.ends_with(ASKED), refused) {
            (true, false) => Some(Event::Reply(Ok(block.lines))),
            (true, true) => Some(Event::Reply(Err(message()))),
            (false, true) if self.others == 1 => Some(Event::NotAttached(message())),
            (false, _) => None,
        }
    }
}

/// The words of a command made by a builder, followed by an argv that is to arrive byte for byte.
pub(super) fn with_argv(command: &TmuxCommand<'_>, argv: &[OsString]) -> Words {
    let mut all = words(command);
    all.push("--".into());
    all.extend_from_slice(argv);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(text: &str) -> Event {
        Event::Reply(Ok(text.as_bytes().to_vec()))
    }

    fn all(bytes: &[u8]) -> Vec<Event> {
        Replies::default().feed(bytes)
    }

    #[test]
    fn replies_are_found_between_notifications_and_the_answers_to_others() {
        let stream = b"%begin 1 10 0\n%end 1 10 0\n%session-changed $0 k3x9ab\n%begin 1 11 1\n@1 %1 77\n%end 1 11 1\n\
            %window-add @1\n%begin 1 12 0\n%end 1 12 0\n%begin 1 13 1\n%end 1 13 1\n%begin 1 14 1\nno such\n%error 1 14 1\n";
        let wanted = [ok("@1 %1 77\n"), ok(""), Event::Reply(Err("no such".to_owned()))];
        assert_eq!(all(stream), wanted);
        let mut replies = Replies::default();
        let by_byte: Vec<_> = stream.iter().flat_map(|byte| replies.feed(&[*byte])).collect();
        assert_eq!(by_byte, wanted, "it does not matter how the bytes arrive");
    }

    #[test]
    fn a_window_cannot_end_a_reply_or_the_connection_by_what_it_prints() {
        let lines = "%exit\n%end of story\n%end\n%end 1 12 1\n%error 1 10 1\n%end 1 11 0\n%begin 1 11 1\n\n";
        let stream = format!("%begin 1 11 1\n{lines}%end 1 11 1\n%begin 1 12 1\nnext\n%end 1 12 1\n");
        assert_eq!(all(stream.as_bytes()), [ok(lines), ok("next\n")]);
    }

    #[test]
    fn bytes_that_are_not_text_are_kept() {
        let stream = b"%output %0 \xff\xfe\n%begin 1 11 1\n\xff\x00\n%end 1 11 1\n";
        assert_eq!(all(stream), [Event::Reply(Ok(b"\xff\x00\n".to_vec()))]);
    }

    #[test]
    fn a_reply_may_have_any_length() {
        let long = "x".repeat(300_000) + "\n" + &"line\n".repeat(50_000);
        let stream = format!("%begin 1 11 1\n{long}%end 1 11 1\n");
        let mut replies = Replies::default();
        let events: Vec<_> = stream.as_bytes().chunks(4096).flat_map(|chunk| replies.feed(chunk)).collect();
        assert_eq!(events, [ok(&long)]);
    }

    #[test]
    fn a_session_that_is_not_there_is_no_reply() {
        let stream = b"%begin 1 9 1\n718\n%end 1 9 1\n%begin 1 10 0\ncan't find session: k3x9ab\n%error 1 10 0\n\
            %begin 1 11 0\na hook\n%error 1 11 0\n%exit\n";
        assert_eq!(all(stream), [ok("718\n"), Event::NotAttached("can't find session: k3x9ab".to_owned())]);
    }

    #[test]
    fn a_command_is_one_line_whatever_its_words_hold() {
        let words = ["new-window", "a\nb;", "", "~"].map(OsString::from);
        assert_eq!(line(&words), b"\"new-window\" \"a\\012b\\073\" \"\" \"\\176\" \n");
    }
}
