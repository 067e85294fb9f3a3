//! The conversation of an attempt: in memory for the next request, and on disk before anything else happens.
//!
//! Deliberately absent: what is said, and how a provider wants to hear it.

use super::context;
use crate::model::message::{AssistantMessage, Message, ToolResult, UserMessage};
use crate::model::time::Now;
use crate::store::session::{self, Session, SessionError};

/// Messages and the session that holds them.
pub(super) struct Conversation {
    session: Session,
    messages: Vec<Message>,
    /// Results before this one are left out of requests.
    elided: usize,
    clock: fn() -> Now,
}

impl Conversation {
    /// Goes on from what a session held; calls without a result are closed, in the file too.
    pub(super) fn new(session: Session, history: &[Message], clock: fn() -> Now) -> Result<Self, SessionError> {
        let mut messages = session::repair(history.to_vec());
        // Results that repair put at the end are new; those further up would not be in their place in the file.
        let closing = messages.iter().rev().take_while(|message| matches!(message, Message::Tool(_))).count();
        let tail = messages.split_off(messages.len() - closing);
        let recorded = history.iter().rev().take_while(|message| matches!(message, Message::Tool(_))).count();
        let known = &history[history.len() - recorded..];
        let mut conversation = Self { session, messages, elided: 0, clock };
        for message in tail {
            if known.contains(&message) {
                conversation.messages.push(message);
            } else {
                conversation.push(message)?;
            }
        }
        Ok(conversation)
    }

    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The messages as the next request carries them.
    pub(super) fn view(&self) -> Vec<Message> {
        context::view(&self.messages, self.elided)
    }

    pub(super) fn bytes_in_view(&self) -> usize {
        context::bytes_in_view(&self.messages, self.elided)
    }

    /// Leaves results out of requests from now on, worth so many bytes if there are as many.
    pub(super) fn elide(&mut self, bytes: usize) {
        self.elided = context::elide(&self.messages, self.elided, bytes);
    }

    /// Goes on from these messages; the file keeps all that was said before.
    pub(super) fn compact(&mut self, messages: Vec<Message>) -> Result<(), SessionError> {
        self.session.compacted(&messages, (self.clock)().wall)?;
        self.messages = messages;
        self.elided = 0;
        Ok(())
    }

    pub(super) fn push(&mut self, message: Message) -> Result<(), SessionError> {
        self.session.append(&message, (self.clock)().wall)?;
        self.messages.push(message);
        Ok(())
    }

    pub(super) fn user(&mut self, by: &str, text: &str) -> Result<(), SessionError> {
        self.push(Message::User(UserMessage { text: text.to_owned(), by: by.to_owned() }))
    }

    /// For readers of the transcript, not for the model. Losing one loses no work.
    pub(super) fn note(&mut self, text: &str) {
        let _ = self.session.note(text, (self.clock)().wall);
    }

    /// The text of the last answer that said something.
    pub(super) fn last_text(&self) -> &str {
        self.answers().map(|answer| answer.text.as_str()).rfind(|text| !text.trim().is_empty()).unwrap_or_default()
    }

    fn answers(&self) -> impl DoubleEndedIterator<Item = &AssistantMessage> {
        self.messages.iter().filter_map(|message| match message {
            Message::Assistant(answer) => Some(answer),
            Message::User(_) | Message::Tool(_) => None,
        })
    }

    pub(super) fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.messages.iter().filter_map(|message| match message {
            Message::Tool(result) => Some(result),
            Message::User(_) | Message::Assistant(_) => None,
        })
    }
}
