//! A conversation that grows too long: what of it a request still carries, and when it is summed up.
//!
//! In two steps. Old tool results are left out first; the session keeps them, and each call keeps a result, so that
//! every provider takes the conversation. Where that no longer helps, all but the end is replaced by a summary
//! (`compact.rs`). A request that begins like the one before costs a tenth, so both happen in large steps and rarely.
//! Deliberately absent: asking for the summary.

use crate::model::message::{AssistantMessage, Message, ToolResult};

/// What stands in the place of a result that is left out.
const ELIDED: &str = "[left out: this older result no longer fits; call the tool again if you need it]";
/// A result shorter than this is not worth leaving out.
const SHORT: usize = 200;
/// What a picture costs whatever its bytes, in the bytes of text that cost the same.
const IMAGE_BYTES: usize = 6_000;
/// Shares of the window: from the first on old results are left out, down to the second; from the third on the
/// conversation is summed up.
const ELIDE: f64 = 0.6;
const ELIDE_TO: f64 = 0.4;
const SUMMARISE: f64 = 0.8;
/// The end of a conversation that a summary leaves as it is: at most so many tokens, and so much of the window.
const TAIL_TOKENS: u64 = 20_000;
const TAIL: f64 = 0.2;
/// What is less than this share of the window is not worth a summary.
const WORTH: f64 = 0.1;

/// A rough count: four bytes are one token.
pub(super) fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

pub(super) fn bytes_of(message: &Message) -> usize {
    match message {
        Message::User(user) => user.text.len(),
        Message::Tool(result) => result.output.len() + result.images.len() * IMAGE_BYTES,
        Message::Assistant(answer) => {
            let calls = answer
                .calls
                .iter()
                .map(|call| call.name.len() + serde_json::to_string(&call.input).map_or(0, |input| input.len()));
            let thinking: usize = answer.thinking.iter().map(|thinking| thinking.text.len()).sum();
            answer.text.len() + thinking + calls.sum::<usize>()
        }
    }
}

/// What should happen before the next request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pressure {
    None,
    /// Old results must go, worth so many bytes.
    Elide {
        bytes: usize,
    },
    Summarise,
}

/// Judges by what the next request is expected to take in.
pub(super) fn pressure(input_tokens: u64, window_tokens: u64) -> Pressure {
    let share = share(input_tokens, window_tokens);
    if share >= SUMMARISE {
        Pressure::Summarise
    } else if share >= ELIDE {
        Pressure::Elide { bytes: bytes_over(input_tokens, window_tokens) }
    } else {
        Pressure::None
    }
}

pub(super) fn share(input_tokens: u64, window_tokens: u64) -> f64 {
    input_tokens as f64 / window_tokens.max(1) as f64
}

/// How much must go so that the window is filled as after leaving out.
pub(super) fn bytes_over(input_tokens: u64, window_tokens: u64) -> usize {
    let over = input_tokens as f64 - window_tokens as f64 * ELIDE_TO;
    (over.max(0.0) * 4.0) as usize
}

/// Up to where results must be left out to save so many bytes, those before `from` being left out already. The results
/// of the newest turn are what the model waits for and stay.
pub(super) fn elide(messages: &[Message], from: usize, bytes: usize) -> usize {
    let newest = messages.iter().rposition(|message| matches!(message, Message::Assistant(_))).unwrap_or(0);
    let mut saved = 0;
    let mut at = from;
    while at < newest && saved < bytes {
        saved += left_out(&messages[at]).map_or(0, |shorter| bytes_of(&messages[at]) - bytes_of(&shorter));
        at += 1;
    }
    at
}

/// The message without its result, if it is one that is worth leaving out.
fn left_out(message: &Message) -> Option<Message> {
    match message {
        Message::Tool(result) if result.output.len() > SHORT || !result.images.is_empty() => {
            // What was already short is still shorter than the note about it.
            let output = if result.output.len() > SHORT { ELIDED.to_owned() } else { result.output.clone() };
            Some(Message::Tool(ToolResult { output, images: Vec::new(), ..result.clone() }))
        }
        Message::Tool(_) | Message::User(_) | Message::Assistant(_) => None,
    }
}

/// The messages as a request carries them. An answer that says nothing is left out, because strict servers refuse it.
pub(super) fn view(messages: &[Message], elided: usize) -> Vec<Message> {
    let said = |message: &&Message| match message {
        Message::Assistant(AssistantMessage { text, calls, .. }) => !text.is_empty() || !calls.is_empty(),
        Message::User(_) | Message::Tool(_) => true,
    };
    let shown = messages.iter().enumerate().filter(|(_, message)| said(message));
    shown
        .map(|(at, message)| if at < elided { left_out(message) } else { None }.unwrap_or_else(|| message.clone()))
        .collect()
}

/// What a request carries of the messages, in bytes, without copying them.
pub(super) fn bytes_in_view(messages: &[Message], elided: usize) -> usize {
    let of = |(at, message): (usize, &Message)| {
        let shorter = if at < elided { left_out(message) } else { None };
        shorter.as_ref().map_or_else(|| bytes_of(message), bytes_of)
    };
    messages.iter().enumerate().map(of).sum()
}

/// How a conversation is cut in three for its summary.
#[derive(Debug, PartialEq)]
pub(super) struct Parts<'a> {
    /// The task, which stays word for word: whoever goes on is held to it, not to what somebody made of it.
    pub(super) task: Option<&'a Message>,
    /// What is summed up.
    pub(super) middle: &'a [Message],
    /// What stays as it is.
    pub(super) tail: &'a [Message],
}

/// Cuts a conversation for its summary. `None` where nothing would be won.
///
/// The cut is before any message that is no result: no call loses its result, also within one long turn.
pub(super) fn parts(messages: &[Message], window_tokens: u64) -> Option<Parts<'_>> {
    let room = 4 * TAIL_TOKENS.min((window_tokens as f64 * TAIL) as u64) as usize;
    let mut cut = messages.len();
    let mut bytes = 0;
    for (at, message) in messages.iter().enumerate().rev() {
        bytes += bytes_of(message);
        if bytes > room {
            break;
        }
        if !matches!(message, Message::Tool(_)) {
            cut = at;
        }
    }
    let task = messages.first().filter(|first| matches!(first, Message::User(_)));
    let begin = usize::from(task.is_some());
    let middle = messages.get(begin..cut)?;
    let worth = tokens(middle.iter().map(bytes_of).sum()) as f64 >= window_tokens as f64 * WORTH;
    (worth && !middle.is_empty()).then(|| Parts { task, middle, tail: &messages[cut..] })
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

    fn task() -> Message {
        Message::User(UserMessage { text: "task".into(), by: "task".into() })
    }

    fn long_turn(turns: usize) -> Vec<Message> {
        std::iter::once(task()).chain((0..turns).flat_map(turn)).collect()
    }

    #[test]
    fn the_oldest_results_go_first_and_no_call_loses_its_result() {
        let messages = long_turn(40);
        let elided = elide(&messages, 0, 60_000);
        let kept = view(&messages, elided);
        assert_eq!(kept.len(), messages.len());
        assert!(bytes_in_view(&messages, elided) <= bytes_in_view(&messages, 0) - 60_000);
        assert_eq!(kept.iter().map(bytes_of).sum::<usize>(), bytes_in_view(&messages, elided));
        assert_eq!(kept.last(), messages.last());
        assert!(matches!(&kept[2], Message::Tool(result) if result.output == ELIDED));
        assert_eq!(view(&messages, 0), messages);
        // However much is asked, the newest turn stays.
        assert_eq!(view(&messages, elide(&messages, elided, usize::MAX))[79..], messages[79..]);
    }

    #[test]
    fn requests_begin_alike_until_the_next_step() {
        let window = 20_000;
        let (mut elided, mut steps) = (0, 0);
        for turns in 1..200 {
            let messages = long_turn(turns);
            let input = tokens(bytes_in_view(&messages, elided));
            match pressure(input, window) {
                Pressure::None => {}
                Pressure::Elide { bytes } => {
                    elided = elide(&messages, elided, bytes);
                    steps += 1;
                    assert!(share(tokens(bytes_in_view(&messages, elided)), window) < ELIDE);
                }
                Pressure::Summarise => panic!("results can still be left out after {turns} turns"),
            }
        }
        assert!((5..40).contains(&steps), "{steps} steps in 200 turns");
    }

    #[test]
    fn pressure_rises_with_what_the_model_takes_in() {
        assert_eq!(pressure(59_999, 100_000), Pressure::None);
        assert_eq!(pressure(60_000, 100_000), Pressure::Elide { bytes: 80_000 });
        assert_eq!(pressure(80_000, 100_000), Pressure::Summarise);
        assert_eq!(pressure(1, 0), Pressure::Summarise);
    }

    #[test]
    fn a_conversation_is_cut_where_no_result_is_orphaned_even_in_one_long_turn() {
        let messages = long_turn(100);
        for window in [1_000, 20_000, 100_000, 200_000] {
            let Parts { task, middle, tail } = parts(&messages, window).unwrap();
            assert_eq!(task, Some(&messages[0]), "{window}");
            assert!(!matches!(tail.first(), Some(Message::Tool(_))), "{window}");
            assert_eq!(1 + middle.len() + tail.len(), messages.len(), "{window}");
            let kept: usize = tail.iter().map(bytes_of).sum();
            assert!(tokens(kept) <= TAIL_TOKENS.min(window / 5), "{window}: {kept}");
        }
    }

    #[test]
    fn what_is_short_is_not_summed_up() {
        assert_eq!(parts(&long_turn(1), 200_000), None);
        assert_eq!(parts(&[], 200_000), None);
        let long_task = Message::User(UserMessage { text: "x".repeat(90_000), by: "task".into() });
        let messages = [vec![long_task.clone()], long_turn(2)].concat();
        assert_eq!(parts(&messages, 200_000), None);
        assert_eq!(parts(&messages[..1], 10), None, "a task is never summed up");
        assert_eq!(parts(&messages, 5_000).unwrap().task, Some(&long_task));
    }
}
