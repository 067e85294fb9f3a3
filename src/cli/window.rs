//! A child's window in its first form: lines as the work happens, and a plain line of input that steers.

use std::io::BufRead;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::{output, wire};
use crate::agent::Typed;
use crate::agent::event::{AgentEvent, Sink, line};

/// Lines that may wait for the loop; a person types slower.
const WAITING: usize = 64;

/// What a person who comes to look can do.
const KEYS: &str = "   (a line and Enter steers · Alt-n Alt-p other windows · Alt-w list · Alt-q back)";

/// Shows events as lines. Without a terminal it shows nothing: the log has them.
pub(super) struct Window {
    shows: bool,
}

impl Window {
    pub(super) const fn new(shows: bool) -> Self {
        Self { shows }
    }
}

impl Sink for Window {
    fn emit(&self, event: &AgentEvent) {
        if self.shows
            && let Some(line) = line(event)
        {
            // A terminal that is gone is no reason to stop.
            output::line(&line);
            if matches!(event, AgentEvent::Started { .. }) {
                output::line(KEYS);
            }
        }
    }
}

/// What a person does, and the end to tell more through.
pub(super) fn typed() -> (mpsc::Sender<Typed>, mpsc::Receiver<Typed>) {
    mpsc::channel(WAITING)
}

/// Passes on the lines that a person types. The thread ends with the process: a terminal cannot be read otherwise.
pub(super) fn read_lines(to: mpsc::Sender<Typed>) {
    let terminal = nix::unistd::ttyname(std::io::stdin())
        .map(|path| path.to_string_lossy().trim_start_matches("/dev/").to_owned())
        .unwrap_or_default();
    std::thread::spawn(move || {
        for text in std::io::stdin().lock().lines() {
            let Ok(text) = text else { return };
            let typed = Typed::Line { terminal: terminal.clone(), text };
            if to.blocking_send(typed).is_err() {
                return;
            }
        }
    });
}

/// Whether somebody looks at the run now. Asked only when there is a question.
pub(super) fn attached(run: &str) -> Arc<dyn Fn() -> bool + Send + Sync> {
    let run = run.to_owned();
    if std::env::var_os("TMUX_PANE").is_none() {
        return Arc::new(|| false);
    }
    Arc::new(move || {
        let run = run.clone();
        // The loop has one thread and a runtime already; asking takes a thread of its own for some milliseconds.
        let asks = std::thread::spawn(move || {
            let (Ok(server), Ok(runtime)) = (wire::tmux_server_of_window(), wire::runtime()) else { return false };
            runtime.block_on(server.attached_clients(&run)).is_ok_and(|clients| clients > 0)
        });
        asks.join().unwrap_or(false)
    })
}
