//! `sleep`: a pause of a minute at most, which Esc and signals end.
//!
//! A wish outside of that is brought inside and said, never refused: a model that wants to wait should wait.
//! Deliberately absent: waiting for anything to happen.

use std::time::Duration;

use serde_json::json;

use super::{Answer, Input, Running, Scope, Tool};
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::tool_name::ToolName;

const LONGEST_S: f64 = 60.0;

#[derive(Debug)]
pub(crate) struct Sleep;

impl Tool for Sleep {
    fn name(&self) -> ToolName {
        ToolName::Sleep
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Sleep.as_str(),
            description: "Wait, 60 seconds at most.".to_owned(),
            input: json!({
                "type": "object",
                "properties": {"seconds": {"type": "number"}},
                "required": ["seconds"]
            }),
        }
    }

    fn subject(&self, _: &Input, _: &Scope) -> Subject {
        Subject::None
    }

    fn run<'a>(&'a self, input: Input, scope: &'a Scope) -> Running<'a> {
        let mut cut = scope.cut.clone();
        Box::pin(async move {
            let Some(asked) = seconds(&input) else {
                return Answer::correction("the argument `seconds` must be a number of seconds, from 0 to 60");
            };
            let seconds = asked.clamp(0.0, LONGEST_S);
            let began = tokio::time::Instant::now();
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs_f64(seconds)) => {}
                // A sender that is gone can cut nothing.
                Ok(_) = cut.wait_for(|cut| *cut) => {
                    let slept = began.elapsed().as_secs_f64();
                    return Answer::correction(format!("cut after {slept:.0} of {seconds} s"));
                }
            }
            if asked > LONGEST_S {
                Answer::done(format!("waited {seconds} s, which is the longest; call again to wait on"))
            } else {
                Answer::done(format!("waited {seconds} s"))
            }
        })
    }
}

/// Models also write numbers as text. What is no time at all is corrected.
fn seconds(input: &Input) -> Option<f64> {
    let value = input.get("seconds")?;
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    (number >= 0.0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::fixture::Fixture;

    async fn sleep(fixture: &Fixture, input: serde_json::Value) -> (Answer, f64) {
        let began = tokio::time::Instant::now();
        let answer = Sleep.run(input.as_object().unwrap().clone(), &fixture.scope).await;
        (answer, began.elapsed().as_secs_f64())
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_lasts_as_asked_and_a_minute_at_most() {
        let fixture = Fixture::new();
        for (asked, slept) in [(json!(2), 2.0), (json!("1.5"), 1.5), (json!(0), 0.0), (json!(3600), 60.0)] {
            let (answer, took) = sleep(&fixture, json!({"seconds": asked})).await;
            assert!(answer.ok && (took - slept).abs() < 0.1, "{asked}: {took} {answer:?}");
        }
        let (answer, _) = sleep(&fixture, json!({"seconds": 3600})).await;
        assert!(answer.text.contains("the longest"), "{answer:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_time_is_corrected_at_once() {
        let fixture = Fixture::new();
        for input in [json!({}), json!({"seconds": -1}), json!({"seconds": "soon"}), json!({"seconds": "NaN"})] {
            let (answer, took) = sleep(&fixture, input).await;
            assert!(!answer.ok && took < 0.1 && answer.text.contains("`seconds`"), "{answer:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_is_cut_ends_at_once_and_says_so() {
        let fixture = Fixture::new();
        let cut = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            fixture.cut.send(true).unwrap();
        };
        let ((answer, took), ()) = tokio::join!(sleep(&fixture, json!({"seconds": 50})), cut);
        assert!(!answer.ok && took < 3.1, "{took}");
        assert_eq!(answer.text, "cut after 3 of 50 s");
    }
}
