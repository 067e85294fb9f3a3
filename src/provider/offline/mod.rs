//! `offline/explorer`: the built-in model that needs no key and no network.
//!
//! It is a search, not a language model: a pure function of the request that looks at the conversation and asks for
//! the next tool calls, then writes a report whose every `path:line` was seen in a tool's answer. The way: the words of
//! the question (`question`), what has been seen (`evidence`), which lines answer best (`rank`), what to ask next
//! (`plan`), the report (`report`). Deliberately absent: IO, state between requests, any wish to sound clever.

mod definition;
mod evidence;
mod overview;
mod plan;
mod question;
mod rank;
mod report;
#[cfg(test)]
mod tests;
mod words;

use std::time::Duration;

use futures_util::stream;

use super::{EventStream, Provider, ProviderEvent, Request};
use crate::model::message::AssistantMessage;

/// The built-in model.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Explorer {
    /// How long the stream waits before each event, so that a person can follow a demonstration.
    pub(crate) pace: Duration,
}

impl Provider for Explorer {
    fn stream(&self, request: Request) -> EventStream {
        let pace = self.pace;
        let events = events(plan::next_turn(&request)).into_iter();
        Box::pin(stream::unfold(events, move |mut events| async move {
            let event = events.next()?;
            if !pace.is_zero() {
                tokio::time::sleep(pace).await;
            }
            Some((Ok(event), events))
        }))
    }
}

/// The turn as a model would stream it: text in paragraphs, then the calls, then the end.
fn events(turn: AssistantMessage) -> Vec<ProviderEvent> {
    let paragraphs = turn.text.split_inclusive("\n\n").map(|text| ProviderEvent::Text(text.to_owned()));
    let calls = turn.calls.into_iter().map(ProviderEvent::Call);
    paragraphs.chain(calls).chain([ProviderEvent::Finished { usage: turn.usage, stop: turn.stop }]).collect()
}
