//! What a person does to the loop itself: their next line after an answer, another agent, mode or model, the end.
//!
//! And what follows from who works: the tools offered and the rules that hold. Deliberately absent: keys and screens,
//! and texts for the model (`wheel.rs`).

use std::path::Path;
use std::sync::Arc;

use super::attempt::{Attempt, UserRules};
use super::event::AgentEvent;
use super::report::End;
use super::{Command, Until, prompt};
use crate::machine::gate::{self, Confinement, Policy};
use crate::model::child::FailureKind;
use crate::model::persona::{Mode, Persona};
use crate::model::rule::Rule;
use crate::model::status::Phase;
use crate::model::tool_name::ToolName;
use crate::store::session::SessionError;
use crate::tool::Tool;

impl Attempt {
    /// The loop would end so. Where a person decides when it does, it waits for them instead.
    pub(super) async fn after(&mut self, end: End) -> Result<Option<End>, SessionError> {
        if self.until == Until::Report {
            return Ok(Some(end));
        }
        match end {
            End::Done => {}
            // A model that does not answer is no end of the session: the person may wait, or name another one.
            End::Failed(failure)
                if matches!(
                    failure.kind,
                    FailureKind::Provider | FailureKind::Empty | FailureKind::Schema | FailureKind::Missing
                ) =>
            {
                self.tell(&failure.to_string());
            }
            End::Parked { until, detail } => self.tell(&format!("{detail}; ask again after {until}")),
            end @ (End::Failed(_) | End::Limit { .. } | End::Cancelled(_)) => return Ok(Some(end)),
        }
        self.wait_for_the_person().await
    }

    /// Waits for the next line. How the session ends, if that is what came.
    async fn wait_for_the_person(&mut self) -> Result<Option<End>, SessionError> {
        let now = (self.clock)();
        self.sink.emit(&AgentEvent::Idle);
        loop {
            self.status.phase(Phase::Held, "waits for you");
            self.wheel.next_line().await;
            if self.wheel.signal().is_some() || self.wheel.quits() {
                return Ok(Some(End::Done));
            }
            if let Some(by) = self.wheel.wrap_up() {
                return Ok(Some(End::Limit { why: format!("{by} asked for the report") }));
            }
            self.obey().await?;
            if self.wheel.has_more() {
                break;
            }
        }
        self.stand_still_since(now);
        self.begin_anew();
        Ok(None)
    }

    /// The end that a person chose.
    pub(super) fn quit(&self) -> End {
        match self.until {
            Until::Quit => End::Done,
            // What was asked for is a report, and this is none.
            Until::Report => End::Limit { why: "a person ended it".to_owned() },
        }
    }

    /// Does what a person told the loop itself since the last boundary.
    pub(super) async fn obey(&mut self) -> Result<(), SessionError> {
        while let Some(command) = self.wheel.take_command() {
            let done = match command {
                Command::Agent(name) => self.change_agent(&name),
                Command::Model(name) => self.change_model(&name),
                Command::Mode(mode) => {
                    self.enter(mode);
                    Ok(())
                }
                // What cut it is heard at the next boundary.
                Command::Compact => self.compact().await?.map_or(Ok(()), |_| Ok(())),
                Command::Quit => Ok(()),
            };
            if let Err(why) = done {
                self.tell(&why);
            }
        }
        Ok(())
    }

    /// Another persona goes on with the same conversation.
    fn change_agent(&mut self, name: &str) -> Result<(), String> {
        let (mut persona, system) = self.switchboard.persona(name)?;
        if self.brief.lease.is_shared() {
            let before = &self.brief.spec.persona.tools;
            let (kept, lost): (Vec<ToolName>, Vec<ToolName>) =
                persona.tools.iter().copied().partition(|tool| tool.only_reads() || before.contains(tool));
            if !lost.is_empty() {
                let names: Vec<&str> = lost.iter().map(|tool| tool.as_str()).collect();
                self.tell(&format!("without {}: this session works in the project itself", names.join(", ")));
            }
            persona.tools = kept;
        }
        let listeners =
            Listeners { could_come: self.wheel.could_be_answered(), are_there: &|| self.wheel.somebody_is_there() };
        let tools = offered(&self.known, &persona.tools, &listeners);
        let lease = Path::new(&self.brief.lease.path);
        self.policy = policy(&persona, &self.users, self.policy.confinement, lease, &self.place.environment);
        self.place.deny.clone_from(&self.policy.deny);
        self.before_plan = match self.policy.mode {
            Mode::Plan => Mode::Edit,
            mode @ (Mode::Default | Mode::Edit | Mode::Bypass) => mode,
        };
        self.tools_bytes = bytes_of(&tools);
        self.tools = tools;
        self.brief.spec.persona = persona;
        self.brief.spec.system = system;
        self.system = prompt::system(&self.brief, &self.context, (self.clock)().wall);
        self.conversation.note(&format!("goes on as `{name}`"));
        self.tell_now();
        Ok(())
    }

    fn change_model(&mut self, name: &str) -> Result<(), String> {
        let model = self.switchboard.model(name)?;
        self.model = name_of(&model.name);
        self.provider = model.provider;
        self.price = model.price;
        self.window_tokens = model.window_tokens;
        // Another model counts otherwise.
        self.uncounted = 0;
        self.no_summary = 0;
        self.conversation.note(&format!("goes on with {}", model.name));
        self.brief.spec.model = model.name;
        self.tell_now();
        Ok(())
    }

    /// Changes how freely tools run. Only a person's word, or what was allowed at the start, gets here.
    pub(super) fn enter(&mut self, mode: Mode) {
        if mode == Mode::Plan && self.policy.mode != Mode::Plan {
            self.before_plan = self.policy.mode;
        }
        self.policy.mode = mode;
        self.tell_now();
    }

    /// Tells who works now.
    pub(super) fn tell_now(&self) {
        self.sink.emit(&AgentEvent::Now {
            agent: self.brief.spec.persona.name.clone(),
            mode: self.policy.mode,
            model: self.brief.spec.model.clone(),
        });
    }
}

/// The persona's rules and the user's, in the form the gate knows. What the run denies, stays denied.
pub(super) fn policy(
    persona: &Persona,
    users: &UserRules,
    confinement: Confinement,
    lease: &Path,
    environment: &[(String, String)],
) -> Policy {
    let home = environment.iter().find(|(name, _)| name == "HOME").map(|(_, path)| Path::new(path));
    let anchored = |own: &[Rule], users: &[Rule]| {
        let mut rules = gate::anchored([own, users].concat(), lease, home);
        let mut at = 0;
        // The same rule twice says no more; personas are changed often in a long session.
        while at < rules.len() {
            let seen = rules[..at].contains(&rules[at]);
            if seen {
                rules.remove(at);
            } else {
                at += 1;
            }
        }
        rules
    };
    let mode = match persona.mode {
        Mode::Bypass if users.started_in != Mode::Bypass => Mode::Default,
        mode @ (Mode::Default | Mode::Edit | Mode::Plan | Mode::Bypass) => mode,
    };
    Policy {
        mode,
        allow: anchored(&persona.allow, &users.allow),
        deny: anchored(&persona.deny, &users.deny),
        confinement,
    }
}

/// Who is there to be asked.
pub(super) struct Listeners<'a> {
    /// Somebody could come and answer a question.
    pub(super) could_come: bool,
    /// Somebody is there now. Asked only where it matters: it takes a question to tmux.
    pub(super) are_there: &'a dyn Fn() -> bool,
}

/// The tools of a persona that exist. Plan mode is a trap where nobody can approve the plan, and a question that nobody
/// can ever answer is a detour.
pub(super) fn offered(known: &[Arc<dyn Tool>], wanted: &[ToolName], listeners: &Listeners<'_>) -> Vec<Arc<dyn Tool>> {
    let plans = |name: &ToolName| matches!(name, ToolName::EnterPlanMode | ToolName::ExitPlanMode);
    let there = |name: &ToolName| known.iter().any(|tool| tool.name() == *name);
    let approvable = wanted.iter().any(|name| plans(name) && there(name)) && (listeners.are_there)();
    let useful = |name: &ToolName| match name {
        ToolName::AskUser => listeners.could_come,
        name => approvable || !plans(name),
    };
    wanted
        .iter()
        .enumerate()
        .filter(|(at, name)| !wanted[..*at].contains(name) && useful(name))
        .filter_map(|(_, name)| known.iter().find(|tool| tool.name() == *name))
        .cloned()
        .collect()
}

/// What the descriptions of tools take of each request.
pub(super) fn bytes_of(tools: &[Arc<dyn Tool>]) -> usize {
    let each = tools.iter().map(|tool| {
        let spec = tool.spec();
        spec.name.len() + spec.description.len() + spec.input.to_string().len()
    });
    each.sum()
}

/// A model's name without its provider.
pub(super) fn name_of(model: &str) -> String {
    model.split_once('/').map_or(model, |(_, name)| name).to_owned()
}
