//! A conversation that grows too long: what of it a request still carries.
//!
//! Old tool results are left out of the request, newest kept; the session keeps everything. Calls keep their results,
//! so that the conversation stays one that every provider takes. Deliberately absent: summaries.

use crate::model::message::{AssistantMessage, Message, ToolResult};

/// What stands in the place of a result that is left out.
const ELIDED: &str = "[left out: this older result no longer fits; call the tool again if you need it]";
/// A result shorter than this is not worth leaving out.
const SHORT: usize = 200;

/// A rough count: four bytes are one token.
pub(super) fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

pub(super) fn bytes_of(message: &Message) -> usize {
    match message {
        Message::User(user) => user.text.len(),
        Message::Tool(result) => result.output.len(),
        Message::Assistant(answer) => {
            let calls = answer
                .calls
                .iter()
                .map(|call| call.name.len() + serde_json::to_string(&call.input).map_or(0, |input| input.len()));
            answer.text.len() + calls.sum::<usize>()
        }
    }
}

/// The messages of a request of at most `bytes` bytes: the oldest results go first. An answer that says nothing is left
/// out, because strict servers refuse it.
pub(super) fn fitting(messages: &[Message], bytes: usize) -> Vec<Message> {
    let total: usize = messages.iter().map(bytes_of).sum();
    // In steps: a request that begins like the one before is cheaper, so most turns must leave out the same.
    let mut excess = total.saturating_sub(bytes).next_multiple_of((bytes / 4).max(1));
    let mut kept = Vec::with_capacity(messages.len());
    // The results of the newest turn are what the model waits for.
    let newest = messages.iter().rposition(|message| matches!(message, Message::Assistant(_))).unwrap_or(0);
    for (index, message) in messages.iter().enumerate() {
        match message {
            Message::Assistant(AssistantMessage { text, calls, .. }) if text.is_empty() && calls.is_empty() => {}
            Message::Tool(result) if excess > 0 && index < newest && result.output.len() > SHORT => {
                excess = excess.saturating_sub(result.output.len() - ELIDED.len());
                kept.push(Message::Tool(ToolResult { output: ELIDED.to_owned(), ..result.clone() }));
            }
            other => kept.push(other.clone()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::message::UserMessage;

    fn turn(id: usize) -> [Message; 2] {
        let call = crate::model::message::ToolCall {
            id: id.to_string(),
            name: "read".into(),
            input: crate::model::message::ToolInput::Sound(serde_json::Map::new()),
        };
        [
            Message::Assistant(AssistantMessage { calls: vec![call], ..AssistantMessage::default() }),
            Message::Tool(ToolResult {
                call: id.to_string(),
                name: "read".into(),
                ok: true,
                output: "x".repeat(2000),
                images: Vec::new(),
            }),
        ]
    }

    #[test]
    fn the_oldest_results_go_first_and_no_call_loses_its_result() {
        let mut messages = vec![Message::User(UserMessage { text: "task".into(), by: "task".into() })];
        messages.extend((0..40).flat_map(turn));
        let kept = fitting(&messages, 16_000);
        assert_eq!(kept.len(), messages.len());
        assert!(kept.iter().map(bytes_of).sum::<usize>() <= 16_000);
        assert_eq!(kept.last(), messages.last());
        assert!(matches!(&kept[2], Message::Tool(result) if result.output == ELIDED));
        assert_eq!(fitting(&messages, 1_000_000), messages);
        // Sixteen thousand are left out in steps of four, which is two of these turns.
        let left_out = |turns: usize| {
            let kept = fitting(&messages[..=2 * turns], 16_000);
            kept.iter().filter(|message| matches!(message, Message::Tool(result) if result.output == ELIDED)).count()
        };
        let same = (20..40).filter(|turns| left_out(*turns) == left_out(turns + 1)).count();
        assert!(same >= 9, "{same} of 20 turns begin like the one before");
    }
}
