//! `agent`: several questions at once, each to a child that reads and reports.
//!
//! What is asked wrongly is refused as a whole and before anything is spent, with all that is to be mended. Deliberately
//! absent: what a child is and how it is run (the [`Spawner`]), and any judgement of a prompt but its length: a good
//! brief that is refused costs a turn, a thin one that passes costs one weak report.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, Input, Order, Running, Scope, Spawner, Tool, input};
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::run::Place;
use crate::model::tool_name::ToolName;
use crate::text;

/// Prompts of one call.
const PROMPTS: usize = 6;
/// Words of a prompt.
const WORDS: usize = 8;
/// Columns of a prompt that is shown again.
const SHOWN: usize = 60;

#[derive(Debug)]
pub(crate) struct Agent(Arc<dyn Spawner>);

impl Agent {
    pub(crate) fn new(spawner: Arc<dyn Spawner>) -> Self {
        Self(spawner)
    }
}

impl Tool for Agent {
    fn name(&self) -> ToolName {
        ToolName::Agent
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Agent.as_str(),
            description: format!(
                "Explore several angles of the code at once. Each prompt goes to an agent of its own that reads and \
                searches the workspace, changes nothing, cannot ask back and sees nothing of this conversation; its \
                report comes back with path:line evidence, in the order of the prompts. At most {PROMPTS} prompts a \
                call, four work at a time, and what they spend is yours. Use ONE call with several different angles for \
                a broad question; for a single look read or grep yourself. Write each prompt as a brief: what to find \
                out, where to look first, and what to report; {WORDS} words at least."
            ),
            input: json!({
                "type": "object",
                "properties": {
                    "prompts": {
                        "type": "array",
                        "items": {"type": "string"},
                        "minItems": 1,
                        "maxItems": PROMPTS,
                        "description": "One brief for each agent"
                    },
                    "place": {
                        "type": "string",
                        "enum": ["here", "window"],
                        "description": "window: in tmux windows that people can watch and that outlive this session; \
                            here, the default, is cheaper"
                    }
                },
                "required": ["prompts"]
            }),
        }
    }

    fn subject(&self, _input: &Input, _scope: &Scope) -> Subject {
        Subject::None
    }

    fn run<'a>(&'a self, input: Input, scope: &'a Scope) -> Running<'a> {
        Box::pin(async move {
            match order(&input, scope) {
                Ok(order) => self.fold(order).await,
                Err(correction) => correction,
            }
        })
    }
}

impl Agent {
    async fn fold(&self, order: Order) -> Answer {
        match self.0.spawn(order).await {
            Ok(folded) => Answer {
                // What nobody found out is no evidence.
                ok: folded.done > 0,
                text: folded.text,
                usage: Some(Box::new(folded.usage)),
                ..Answer::default()
            },
            Err(error) => Answer::correction(error.to_string()),
        }
    }
}

/// What is asked for, or what is wrong with it.
fn order(input: &Input, scope: &Scope) -> Result<Order, Answer> {
    let prompts = prompts(input.get("prompts")).and_then(checked).map_err(Answer::correction)?;
    let place = match input::optional_text(input, "place")? {
        None | Some("" | "here") => Place::Here,
        Some("window") => Place::Window,
        Some(other) => return Err(Answer::correction(format!("`place` is here or window, not `{other}`"))),
    };
    Ok(Order {
        prompts,
        place,
        spill: scope.spill.clone(),
        left: scope.left,
        cut: scope.cut.clone(),
        teller: scope.teller.clone(),
    })
}

/// The prompts as models write them: a list, a list written as a text, or a single text.
fn prompts(value: Option<&Value>) -> Result<Vec<String>, String> {
    let wrong = "`prompts` must be a list of strings, one brief each";
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => match serde_json::from_str::<Vec<String>>(text) {
            Ok(list) => Ok(list),
            Err(_) => Ok(vec![text.clone()]),
        },
        Some(Value::Array(list)) => {
            let texts: Option<Vec<String>> = list.iter().map(|item| item.as_str().map(str::to_owned)).collect();
            texts.ok_or_else(|| wrong.to_owned())
        }
        Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => Err(wrong.to_owned()),
    }
}

/// The prompts, if all of them can be sent; else all that is to be mended, by the numbers that the fold would have.
fn checked(prompts: Vec<String>) -> Result<Vec<String>, String> {
    if prompts.is_empty() {
        return Err(format!("`prompts` is empty: give 1 to {PROMPTS} briefs of {WORDS} words or more"));
    }
    if prompts.len() > PROMPTS {
        return Err(format!(
            "You asked for {}; the limit is {PROMPTS} a call. No agent was started. Merge those that look at the same \
             code, or send the rest with the next call.",
            prompts.len()
        ));
    }
    let words = |prompt: &String| prompt.split_whitespace().count();
    let (sound, thin): (Vec<usize>, Vec<usize>) = (0..prompts.len()).partition(|&at| words(&prompts[at]) >= WORDS);
    if thin.is_empty() {
        return Ok(prompts);
    }
    let shown = |at: usize| format!("Prompt {} (\"{}\")", at + 1, text::one_line(&prompts[at], SHOWN));
    let mut said = String::from("No agent was started. These say too little:\n");
    for at in thin {
        let count = text::count(words(&prompts[at]), "word", "words");
        let _ = writeln!(
            said,
            "- {} has {count}; write at least {WORDS}: what to find out, where to look, what to report.",
            shown(at)
        );
    }
    if !sound.is_empty() {
        said.push_str("These are well and can stay as they are:\n");
        for at in sound {
            let _ = writeln!(said, "- {}", shown(at));
        }
    }
    said.push_str("Call agent again with all of them, those of the first list written out.");
    Err(said)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::fixture::{Fixture, input};
    use super::super::{Folded, SpawnError};
    use super::*;
    use crate::model::usage::Usage;

    const LONG: &str = "Find where login is checked and report path:line of it";

    /// Keeps what it was asked for, and answers the same to all.
    #[derive(Debug)]
    struct Recording {
        asked: Mutex<Vec<Order>>,
        answer: Result<Folded, SpawnError>,
    }

    impl Spawner for Recording {
        fn spawn(
            &self,
            order: Order,
        ) -> std::pin::Pin<Box<dyn Future<Output = Result<Folded, SpawnError>> + Send + '_>> {
            self.asked.lock().unwrap().push(order);
            let answer = self.answer.clone();
            Box::pin(async move { answer })
        }
    }

    fn folded(done: usize) -> Folded {
        Folded { text: "# Fold".into(), usage: Usage { requests: 7, ..Usage::ZERO }, done }
    }

    fn call(arguments: Value, answer: Result<Folded, SpawnError>) -> (Answer, Vec<Order>) {
        let spawner = Arc::new(Recording { asked: Mutex::default(), answer });
        let answer = Fixture::new().run(&Agent::new(Arc::clone(&spawner) as Arc<dyn Spawner>), input(arguments));
        let asked = std::mem::take(&mut *spawner.asked.lock().unwrap());
        (answer, asked)
    }

    fn refused(arguments: Value) -> String {
        let (answer, asked) = call(arguments, Ok(folded(1)));
        assert!(!answer.ok && asked.is_empty() && answer.usage.is_none(), "{answer:?}");
        answer.text
    }

    #[test]
    fn what_is_asked_wrongly_starts_nobody_and_says_how_to_mend_it() {
        for arguments in [json!({}), json!({"prompts": []}), json!({"prompts": null})] {
            assert!(refused(arguments).contains("is empty"));
        }
        let many = refused(json!({"prompts": vec![LONG; 9]}));
        assert!(many.starts_with("You asked for 9; the limit is 6 a call."), "{many}");
        for arguments in [json!({"prompts": [1]}), json!({"prompts": {}}), json!({"prompts": [LONG, null]})] {
            assert!(refused(arguments).contains("list of strings"));
        }
        assert!(refused(json!({"prompts": [LONG], "place": "moon"})).contains("here or window"));
    }

    #[test]
    fn every_prompt_that_says_too_little_is_named_by_its_number_and_so_is_every_sound_one() {
        let said = refused(json!({"prompts": [LONG, "Find auth", " a  b\nc d e f g ", "", LONG]}));
        assert_eq!(
            said,
            "No agent was started. These say too little:\n\
             - Prompt 2 (\"Find auth\") has 2 words; write at least 8: what to find out, where to look, what to report.\n\
             - Prompt 3 (\"a b c d e f g\") has 7 words; write at least 8: what to find out, where to look, what to \
             report.\n\
             - Prompt 4 (\"\") has 0 words; write at least 8: what to find out, where to look, what to report.\n\
             These are well and can stay as they are:\n\
             - Prompt 1 (\"Find where login is checked and report path:line of it\")\n\
             - Prompt 5 (\"Find where login is checked and report path:line of it\")\n\
             Call agent again with all of them, those of the first list written out."
        );
        assert!(!refused(json!({"prompts": ["Find auth"]})).contains("can stay"));
    }

    #[test]
    fn sound_prompts_are_sent_byte_for_byte_and_may_be_the_same_twice() {
        let odd = "`id` $HOME $(id) !! ' \" a\r\nb 🙂 c d e \\";
        let (answer, asked) = call(json!({"prompts": [odd, LONG, LONG], "place": "window"}), Ok(folded(2)));
        assert!(answer.ok);
        assert_eq!(answer.usage.map(|usage| usage.requests), Some(7));
        assert_eq!(asked[0].prompts, [odd, LONG, LONG]);
        assert_eq!(asked[0].place, Place::Window);
    }

    #[test]
    fn a_list_written_as_a_text_is_a_list_and_a_text_alone_is_one_prompt() {
        let list = Value::from(json!([LONG, LONG]).to_string());
        assert_eq!(call(json!({"prompts": list}), Ok(folded(1))).1[0].prompts.len(), 2);
        let (_, asked) = call(json!({"prompts": LONG}), Ok(folded(1)));
        assert_eq!((asked[0].prompts.as_slice(), asked[0].place), ([LONG.to_owned()].as_slice(), Place::Here));
    }

    #[test]
    fn children_of_whom_none_is_done_are_paid_for_and_no_evidence() {
        let (answer, _) = call(json!({"prompts": [LONG]}), Ok(folded(0)));
        assert!(!answer.ok && answer.text == "# Fold");
        assert_eq!(answer.usage.map(|usage| usage.requests), Some(7));
        let (answer, _) = call(json!({"prompts": [LONG]}), Err(SpawnError("there is no tmux".into())));
        assert_eq!((answer.ok, answer.text.as_str()), (false, "there is no tmux"));
    }
}
