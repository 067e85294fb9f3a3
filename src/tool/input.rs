//! Arguments of a call, taken out with corrections a model can use.

use super::{Answer, Input};

/// A text that must be there.
pub(super) fn text<'a>(input: &'a Input, key: &str) -> Result<&'a str, Answer> {
    optional_text(input, key)?.ok_or_else(|| Answer::correction(format!("the argument `{key}` is missing")))
}

/// A text that may be missing or null.
pub(super) fn optional_text<'a>(input: &'a Input, key: &str) -> Result<Option<&'a str>, Answer> {
    match input.get(key) {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(serde_json::Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Answer::correction(format!("the argument `{key}` must be a string"))),
    }
}

/// A whole number of at least one that may be missing; models also write it as `"5"` and `5.0`.
pub(super) fn optional_count(input: &Input, key: &str) -> Result<Option<u64>, Answer> {
    let value = match input.get(key) {
        None | Some(serde_json::Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let number = match value {
        serde_json::Value::String(text) => text.trim().parse().ok(),
        value => value.as_u64().or_else(|| value.as_f64().filter(|n| n.fract() == 0.0 && *n >= 1.0).map(|n| n as u64)),
    };
    match number {
        Some(number) if number >= 1 => Ok(Some(number)),
        Some(_) | None => Err(Answer::correction(format!("the argument `{key}` must be a whole number from 1 on"))),
    }
}

/// True or false, false if missing.
pub(super) fn flag(input: &Input, key: &str) -> Result<bool, Answer> {
    match input.get(key) {
        None | Some(serde_json::Value::Null) => Ok(false),
        Some(serde_json::Value::Bool(flag)) => Ok(*flag),
        Some(serde_json::Value::String(text)) if text == "true" || text == "false" => Ok(text == "true"),
        Some(_) => Err(Answer::correction(format!("the argument `{key}` must be true or false"))),
    }
}

/// A text that must be there and say something; blanks around it are nothing.
pub(super) fn said(input: &Input, key: &str) -> Result<String, Answer> {
    match text(input, key)?.trim() {
        "" => Err(Answer::correction(format!("the argument `{key}` is empty"))),
        text => Ok(text.to_owned()),
    }
}
