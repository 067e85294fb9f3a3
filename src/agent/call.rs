//! The tool calls of one answer: judged, run, recorded. Every call gets exactly one result.
//!
//! Neighbouring reads run together, all else one after another. Deliberately absent: what a tool does, and the rules.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::watch;

use super::ask::{Permission, Wanted, is_yes};
use super::attempt::Attempt;
use super::event::{AgentEvent, QuestionKind};
use super::prompt;
use super::wheel::{Cut, Reply, Work};
use crate::machine::gate::{self, Decision};
use crate::model::message::{Message, ToolCall, ToolInput, ToolResult};
use crate::model::persona::Mode;
use crate::model::rule::Subject;
use crate::model::status::Phase;
use crate::model::todo::TodoState;
use crate::model::tool_name::{ToolKind, ToolName};
use crate::store::session::SessionError;
use crate::tool::{Answer, Input, Scope, Tool, Wish};

/// What a tool gets to end its processes after a signal: the whole attempt must end within a second.
const HURRY: Duration = Duration::from_millis(700);
/// What it gets when a person pressed Esc.
const PATIENCE: Duration = Duration::from_secs(5);
/// What it gets when somebody waits for the report, which takes its time too.
const WRAP_UP: Duration = Duration::from_secs(3);
/// The result of a call that did not get its turn.
const NOT_RUN: &str = "not run: the turn was cut before it";

/// A call that may run.
struct Ready {
    call: ToolCall,
    tool: Arc<dyn Tool>,
    input: Input,
    subject: Subject,
    summary: String,
}

impl Attempt {
    /// Runs the calls of one answer. What cut them, if something did.
    pub(super) async fn calls(&mut self, calls: Vec<ToolCall>) -> Result<Option<Cut>, SessionError> {
        let mut waiting = VecDeque::from(calls);
        let mut cut = None;
        while let Some(call) = waiting.pop_front() {
            cut = cut
                .or_else(|| self.wheel.signal().map(Cut::Signal))
                .or_else(|| self.wheel.quits().then_some(Cut::Quit));
            if cut.is_some() {
                self.record(&call, &Answer::correction(NOT_RUN))?;
                continue;
            }
            match self.admit(&call).await {
                Err(answer) => self.record(&call, &answer)?,
                Ok(ready) => {
                    let mut batch = vec![ready];
                    if is_read(&batch[0]) {
                        while let Some(next) = waiting.front().and_then(|next| self.free_read(next)) {
                            waiting.pop_front();
                            batch.push(next);
                        }
                    }
                    cut = self.run_batch(batch).await?;
                }
            }
        }
        Ok(cut)
    }

    /// Everything that must hold before a call runs. An error is the answer to the model.
    async fn admit(&mut self, call: &ToolCall) -> Result<Ready, Answer> {
        let ready = self.parse(call)?;
        let name = ready.tool.name();
        let scope = self.scope(watch::channel(false).1);
        let subjects = subjects(&ready, &scope);
        match gate::judge_all(name, &subjects, &self.policy) {
            Decision::Allow => Ok(ready),
            Decision::Deny { reason } => Err(self.denied(&ready, &reason)),
            Decision::Ask { reason } => {
                let wanted = Wanted {
                    what: format!("{name} {}", ready.summary),
                    reason,
                    diff: ready.tool.preview(&ready.input, &scope),
                    always: gate::always(name, &subjects),
                };
                match self.permission(&wanted).await {
                    Permission::Given => Ok(ready),
                    Permission::Denied(why) => Err(self.denied(&ready, &why)),
                }
            }
        }
    }

    /// The tool and the arguments of a call, if both are sound.
    fn parse(&self, call: &ToolCall) -> Result<Ready, Answer> {
        let tool = self.tools.iter().find(|tool| tool.name().as_str() == call.name).ok_or_else(|| {
            let known: Vec<ToolName> = self.tools.iter().map(|tool| tool.name()).collect();
            Answer::correction(prompt::unknown_tool(&call.name, &known))
        })?;
        let input = match &call.input {
            ToolInput::Sound(input) => input.clone(),
            ToolInput::Broken { broken } => return Err(Answer::correction(prompt::broken_arguments(broken))),
        };
        let subject = tool.subject(&input, &self.scope(watch::channel(false).1));
        let summary = summary(&subject, &input);
        Ok(Ready { call: call.clone(), tool: Arc::clone(tool), input, subject, summary })
    }

    /// The call, if it only reads and nobody has to be asked.
    fn free_read(&self, call: &ToolCall) -> Option<Ready> {
        let ready = self.parse(call).ok().filter(is_read)?;
        let scope = self.scope(watch::channel(false).1);
        match gate::judge_all(ready.tool.name(), &subjects(&ready, &scope), &self.policy) {
            Decision::Allow => Some(ready),
            Decision::Ask { .. } | Decision::Deny { .. } => None,
        }
    }

    fn denied(&mut self, ready: &Ready, reason: &str) -> Answer {
        let name = ready.tool.name();
        self.conversation.note(&format!("denied {name} {}: {reason}", ready.summary));
        self.tell(&format!("{name} {} was denied: {reason}", ready.summary));
        Answer::correction(format!("denied: {reason}"))
    }

    /// Does what a tool can only ask of the loop.
    async fn fulfil(&mut self, wish: Wish) -> Answer {
        match wish {
            Wish::Todo(todos) => {
                let open = todos.iter().filter(|todo| todo.state != TodoState::Completed).count();
                let told = format!("kept: {} open of {}", open, crate::text::count(todos.len(), "task", "tasks"));
                self.sink.emit(&AgentEvent::Todo(todos));
                Answer::done(told)
            }
            Wish::Ask { question } => match self.ask(&question, QuestionKind::Free).await {
                Reply::Text { by, text, .. } => Answer::done(format!("{by}: {text}")),
                reply => Answer::correction(unanswered(&reply)),
            },
            Wish::EnterPlanMode => {
                self.enter(Mode::Plan);
                Answer::done("plan mode: look and think, change nothing; then call exit_plan_mode with your plan")
            }
            Wish::ExitPlanMode { .. } if self.policy.mode != Mode::Plan => {
                Answer::correction("this is not plan mode; go on with the work")
            }
            Wish::ExitPlanMode { plan } => self.propose(&plan).await,
        }
    }

    /// Shows a plan. Approval gives back the mode that was left for it and nothing more.
    async fn propose(&mut self, plan: &str) -> Answer {
        let mode = self.before_plan;
        match self.ask(&format!("{plan}\n\nGo on with this plan (mode {mode})? [y/N]"), QuestionKind::Plan).await {
            Reply::Text { text, .. } if is_yes(&text) => {
                self.enter(mode);
                Answer::done("the plan is approved: carry it out")
            }
            Reply::Text { by, text, .. } => {
                Answer::correction(format!("{by} did not approve: {text}\nRefine the plan and ask again."))
            }
            reply => Answer::correction(format!("the plan is not approved: {}", unanswered(&reply))),
        }
    }

    /// Runs calls together and records what came of each.
    async fn run_batch(&mut self, batch: Vec<Ready>) -> Result<Option<Cut>, SessionError> {
        let doing: Vec<String> = batch.iter().map(|ready| format!("{} {}", ready.tool.name(), ready.summary)).collect();
        self.status.phase(Phase::Tool, crate::text::one_line(&doing.join(", "), 100));
        for ready in &batch {
            let (name, summary) = (ready.call.name.clone(), ready.summary.clone());
            self.sink.emit(&AgentEvent::ToolStarted { name, summary });
        }
        let (cutter, cut_receiver) = watch::channel(false);
        let scope = self.scope(cut_receiver);
        let running = batch.iter().map(|ready| caught(ready, &scope));
        let mut running = std::pin::pin!(join_all(running));
        let work = Work::Stirred((self.clock)().mono_ms);
        let (answers, cut) = tokio::select! {
            // What is finished is kept, whatever else comes at the same moment.
            biased;
            answers = &mut running => (answers, None),
            cut = self.wheel.cut(work) => {
                // The receivers may be gone already; then there is nothing left to end.
                let _ = cutter.send(true);
                let patience = match cut {
                    Cut::Signal(_) => HURRY,
                    Cut::WrapUp => WRAP_UP,
                    Cut::Escape | Cut::Quit => PATIENCE,
                };
                let late = || Answer::correction("cut: it did not end in time and its output is lost");
                let answers = tokio::time::timeout(patience, &mut running).await;
                (answers.unwrap_or_else(|_| batch.iter().map(|_| late()).collect()), Some(cut))
            }
        };
        for (ready, mut answer) in batch.iter().zip(answers) {
            if let Some(wish) = answer.wish.take() {
                answer = self.fulfil(*wish).await;
            }
            self.instruct(ready, &mut answer);
            self.count(ready.tool.name(), &answer);
            self.record(&ready.call, &answer)?;
        }
        Ok(cut)
    }

    /// Work reached a file: what its directories want to be known is told with the result.
    fn instruct(&mut self, ready: &Ready, answer: &mut Answer) {
        let reaches = matches!(ready.tool.name(), ToolName::Read | ToolName::Write | ToolName::Edit);
        if let (true, true, Subject::Path(path)) = (reaches, answer.ok, &ready.subject)
            && let Some(told) = self.instructions.reach(std::path::Path::new(path))
        {
            answer.text.push_str(&told);
        }
    }

    fn count(&mut self, name: ToolName, answer: &Answer) {
        if answer.ok && is_evidence(name) {
            self.tally.evidence += 1;
        }
        if let Some(usage) = &answer.usage {
            self.spend_as_told(**usage);
        }
        self.tally.changed.extend(answer.changed.iter().cloned());
        if let Some(diff) = &answer.diff {
            self.sink.emit(&AgentEvent::Changed { diff: diff.clone() });
        }
    }

    fn record(&mut self, call: &ToolCall, answer: &Answer) -> Result<(), SessionError> {
        let result = ToolResult {
            call: call.id.clone(),
            name: call.name.clone(),
            ok: answer.ok,
            output: answer.text.clone(),
            images: answer.images.clone(),
        };
        self.conversation.push(Message::Tool(result))?;
        self.tally.tool_calls += 1;
        let calls = self.tally.tool_calls;
        self.status.soon(|status| status.tool_calls = calls);
        self.status.progressed();
        let line = answer.text.lines().next().unwrap_or_default().to_owned();
        self.sink.emit(&AgentEvent::ToolEnded { name: call.name.clone(), ok: answer.ok, line });
        Ok(())
    }

    fn scope(&self, cut: watch::Receiver<bool>) -> Scope {
        Scope { cut, left: self.left(), ..self.place.clone() }
    }
}

/// Whether a success of the tool shows that the work was looked at.
pub(super) fn is_evidence(name: ToolName) -> bool {
    name.kind() != ToolKind::Control
}

/// All that a call touches.
fn subjects(ready: &Ready, scope: &Scope) -> Vec<Subject> {
    let mut subjects = vec![ready.subject.clone()];
    subjects.extend(ready.tool.further(&ready.input, scope));
    subjects
}

/// Whether it may run beside others. Two calls that start children would both be given what is left.
fn is_read(ready: &Ready) -> bool {
    let name = ready.tool.name();
    name.kind() == ToolKind::ReadOnly && name != ToolName::Agent
}

/// Runs one call; a panic in a tool is a failed call, not the end of the child.
async fn caught(ready: &Ready, scope: &Scope) -> Answer {
    // The future is made inside, because a tool may panic before its first await.
    let running = AssertUnwindSafe(async { ready.tool.run(ready.input.clone(), scope).await });
    running.catch_unwind().await.unwrap_or_else(|panic| {
        let what = super::attempt::panic_text(&*panic);
        Answer::correction(format!("the tool failed inside ({what}); this is a bug in decode, try another way"))
    })
}

/// A call in a few words.
fn summary(subject: &Subject, input: &Input) -> String {
    let searched = input.get("pattern").and_then(serde_json::Value::as_str);
    let text = match (subject, searched) {
        // A search is known by what it looks for; where is said only when it is not everywhere.
        (Subject::Path(place), Some(pattern)) if place == "." || place == pattern => pattern.to_owned(),
        (Subject::Path(place), Some(pattern)) => format!("{pattern} in {place}"),
        (Subject::Path(_) | Subject::Command(_) | Subject::Url(_) | Subject::None, _) => plain(subject, input),
    };
    crate::text::one_line(&text, 100)
}

fn plain(subject: &Subject, input: &Input) -> String {
    match subject {
        Subject::Path(text) | Subject::Command(text) | Subject::Url(text) => text.clone(),
        Subject::None if input.is_empty() => String::new(),
        Subject::None => serde_json::Value::Object(input.clone()).to_string(),
    }
}

/// Why a question brought no answer, for the model.
fn unanswered(reply: &Reply) -> String {
    match reply {
        Reply::Nobody => "nobody is there to answer; decide yourself, and say in your report what you assumed",
        Reply::TimedOut => "nobody answered; decide yourself, and say in your report what you assumed",
        Reply::Refused => "the person does not want to answer; decide yourself",
        Reply::Over | Reply::Text { .. } => "there is no time left to ask; come to an end",
    }
    .to_owned()
}
